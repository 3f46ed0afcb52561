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

// The theme finds every page that has one of the words, or a longer one, most of all in titles: "a" finds "Add an analysis".
const FREQUENT = new Set(("a about am an and are as at be by can do does for from get had has have how i if in is it me my of on or should so that"
  + " the their them then there these they this to was we what when where which who why will with would you your").split(" "));
const { postMessage } = Worker.prototype;
Worker.prototype.postMessage = function (message) {
  const QUERY = 2;
  if (message.type === QUERY) {
    const words = message.data.replace(/[?!.,]+(?=\s|$)/g, "").split(/\s+/);
    const telling = words.filter(word => !FREQUENT.has(word.toLowerCase()));
    message = { ...message, data: (telling.length ? telling : words).join(" ") };
  }
  postMessage.call(this, message);
};
