// The theme loads Mermaid from unpkg.com unless a global `mermaid` exists (Zensical 0.0.73). This one loads the site's own copy of
// the script, and only on a page with a diagram, because the script has 3.5 MB.
(() => {
  const script = new URL("mermaid.min.js", document.currentScript.src).href;
  let configuration;
  let loaded;
  const load = () =>
    new Promise((resolve, reject) => {
      const element = Object.assign(document.createElement("script"), { src: script, onerror: reject });
      element.onload = () => {
        window.mermaid.initialize(configuration); // the script has replaced the global
        resolve(window.mermaid);
      };
      document.head.append(element);
    });
  window.mermaid = {
    initialize(given) {
      configuration = given;
    },
    async render(...diagram) {
      loaded ??= load();
      return (await loaded).render(...diagram);
    },
  };
})();
