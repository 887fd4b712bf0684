// @ts-check
/* Inside the frame that draws diagrams: it has an origin of its own, may load nothing but Mermaid, and reaches nothing. The page
 * sends `{ number, text, look }` and gets `{ number, svg }`, or `{ number }` for a text that is not a diagram. */

const mermaid = /** @type {any} */ (globalThis).mermaid;

/** One at a time: Mermaid has one configuration. */
let before = Promise.resolve();

addEventListener("message", ({ data, source }) => {
  before = before.then(async () => {
    let svg;
    try {
      mermaid.initialize({
        startOnLoad: false,
        securityLevel: "strict",
        suppressErrorRendering: true,
        theme: "base",
        htmlLabels: false,
        flowchart: { htmlLabels: false },
        ...data.look,
      });
      ({ svg } = await mermaid.render(`diagram-${data.number}`, data.text));
    } catch {
      // not a diagram, or one of a kind that is not drawn here
    }
    source?.postMessage({ number: data.number, svg }, { targetOrigin: "*" });
  });
});

parent.postMessage({ isReady: true }, "*");
