// @ts-check
/* Pictures and files of a conversation. Small ones are in the entries; large ones are referenced by digest and fetched when
 * shown, with the key, as blobs of this page. Images on other hosts are links: loading them would reveal the reader. */

import { element, icon, outwardLink, picture } from "antiphon/dom.js";
import { say } from "antiphon/texts.js";
import { cancelling, show } from "./dialogs.js";

const SHOWN = /^image\/(png|jpeg|gif|webp)$/;

/** The node of an image, audio or document part. */
export function media(part, api, path) {
  const name = part.name || part.media_type || part.type;
  if (part.url) return element("p", { class: "file" }, icon("file"), outwardLink(part.url, part.url));
  if (part.type === "image" && part.data?.startsWith("sha256:")) return fetched(part, api, path, name);
  const shown = part.type === "image" && part.data ? picture(part.media_type, part.data, name) : null;
  return shown ? enlargeable(shown, name) : element("p", { class: "file" }, icon("file"), element("span", {}, name));
}

function fetched(part, api, path, name) {
  const place = element("p", { class: "file" }, icon("file"), element("span", {}, name));
  if (!SHOWN.test(part.media_type)) return place;
  api
    .request("GET", `${path}/media/${encodeURIComponent(part.data)}`)
    .then(async (response) => {
      const image = element("img", { class: "picture", alt: name });
      image.src = URL.createObjectURL(new Blob([await response.blob()], { type: part.media_type }));
      place.replaceWith(enlargeable(image, name));
    })
    .catch(() => {}); // the file name is shown already
  return place;
}

/** A picture that is seen as large as the window when it is clicked. */
function enlargeable(image, name) {
  const enlarge = () => {
    const large = element("img", { class: "large", alt: name });
    large.src = image.src;
    show(name, large, cancelling(say("close")), { class: "wide" });
  };
  return element("button", { type: "button", class: "enlarge", title: say("enlarge"), onclick: enlarge }, image);
}
