// Browsers start no worker for a page opened from disk. The search then runs in a hidden frame, which offers what it uses of a
// worker: a script of its own, and messages in both directions.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.srcdoc = "<!doctype html>";
      this.started = new Promise((resolve, reject) => {
        frame.onload = () => {
          const inner = frame.contentWindow;
          inner.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }));
          const script = inner.document.createElement("script");
          script.src = new URL(url, document.baseURI).href;
          script.onload = () => resolve(inner);
          script.onerror = () => reject(new Error(`${script.src}: cannot be loaded`));
          inner.document.body.append(script);
        };
      });
      document.body.append(frame);
    }

    postMessage(data) {
      this.started.then(inner => inner.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
