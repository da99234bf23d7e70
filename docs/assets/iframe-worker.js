// Browsers refuse a Worker in a page that is opened as a file. There the search, which asks for one, runs in a frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inner = frame.contentWindow;
      window.addEventListener("message", ({ source, data }) => {
        if (source === this.inner) this.dispatchEvent(new MessageEvent("message", { data }));
      });
      const script = this.inner.document.createElement("script");
      script.src = url;
      this.loaded = new Promise((resolve) => script.addEventListener("load", resolve));
      this.inner.postMessage = (data) => window.dispatchEvent(new MessageEvent("message", { source: this.inner, data }));
      this.inner.document.body.append(script);
    }

    postMessage(data) {
      this.loaded.then(() => this.inner.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
