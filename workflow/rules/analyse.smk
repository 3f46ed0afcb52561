# One rule for each analysis, named after its verb: what it needs, reads and writes is declared in its class.
for _analysis in PLAN.analyses():

    rule:
        name:
            _analysis.verb
        input:
            PLAN.inputs(_analysis.stage),
        output:
            report(
                update(PLAN.analysis_outputs(_analysis)[0]),
                caption=find_beside(_analysis.caption, workflow.current_basedir),
                category=lambda wildcards: PLAN.category(wildcards.experiment),
                subcategory="{experiment}",
                labels={"result": _analysis.verb},
            ),
            [update(path) for path in PLAN.analysis_outputs(_analysis)[1:]],
            update(f"results/seals/{{experiment}}/{_analysis.verb}.json"),
        log:
            f"results/{{experiment}}/logs/{_analysis.verb}.log",
        conda:
            "../../envs/bayesmesh.yaml"
        threads: lambda wildcards: PLAN.share(wildcards.experiment, PLAN.cores)
        resources:
            gpu=0,
        params:
            config=PLAN.trigger(_analysis.stage),
            spec=PLAN.spec(_analysis.stage),
            code=PLAN.code(_analysis.stage),
            verb=_analysis.command,
        message:
            _analysis.message.replace("{experiment}", "{wildcards.experiment}")
        shell:
            "bayesmesh {params.verb:q} --spec {params.spec:q} --code {params.code:q} --cores {threads}"
            " --gpus {resources.gpu:q} --log {log:q}"
