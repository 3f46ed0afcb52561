"""What `bayesmesh new` starts from: code that runs as it stands, under the names new_model, new_source, new_kernel."""
