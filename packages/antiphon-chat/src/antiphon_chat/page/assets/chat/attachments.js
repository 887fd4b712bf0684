// @ts-check
/* What is attached to the message being written: files that were picked, dropped or pasted, read as base64 and shown as chips.
 * What cannot be sent is refused here with a reason, before anything is uploaded; the server has the last word. */

import { element, fill, icon, iconButton, picture } from "antiphon/dom.js";
import { notice, announce } from "../ui/notifications.js";
import { say, formatSize } from "antiphon/texts.js";

const IMAGES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);
const IMAGE_LIMIT = 10 * 1024 * 1024;
const DOCUMENT_LIMIT = 20 * 1024 * 1024;

/** The files of one message. */
export class Attachments {
  /** `changed()` is called when a file was added or removed. */
  constructor(node, changed) {
    this._node = node;
    this._changed = changed;
    /** @type {Part[]} */
    this.parts = [];
  }

  /** The files as parts of a message. Those that cannot be sent are left out, with a notice. */
  async read(files) {
    const parts = [];
    for (const file of files) {
      const limit = IMAGES.has(file.type) ? IMAGE_LIMIT : DOCUMENT_LIMIT;
      const mediaType = file.size > limit ? null : await mediaTypeOf(file);
      if (file.size > limit)
        notice(say("tooLarge", { name: file.name, size: formatSize(file.size), limit: formatSize(limit) }), true);
      else if (mediaType === null) notice(say("unsupportedFile", { name: file.name }), true);
      else parts.push(partOf(file.name, mediaType, await base64(file)));
    }
    return parts;
  }

  /** A long text that was pasted, as a file. */
  async readText(text) {
    const parts = await this.read([new File([text], `pasted-${this.parts.length + 1}.txt`, { type: "text/plain" })]);
    notice(say("pastedAsFile"));
    return parts;
  }

  put(parts) {
    this.parts = parts;
    this._draw();
    this._changed();
  }

  _draw() {
    this._node.hidden = this.parts.length === 0;
    fill(
      this._node,
      this.parts.map((part) => {
        const name = part.name ?? part.media_type;
        const shown = part.type === "image" ? picture(part.media_type, part.data, "") : icon("file");
        return element(
          "li",
          {},
          shown,
          part.name && element("span", {}, name),
          iconButton("close", say("remove", { name }), () => this.put(this.parts.filter((other) => other !== part))),
        );
      }),
    );
  }
}

function partOf(name, mediaType, data) {
  announce(say("attached", { name }));
  return IMAGES.has(mediaType)
    ? { type: "image", media_type: mediaType, data }
    : { type: "document", media_type: mediaType, data, name };
}

/**
 * The type that a file is sent as; text by its content, whatever its name is, as the server reads it.
 *
 * @param {File} file
 */
async function mediaTypeOf(file) {
  if (IMAGES.has(file.type) || file.type === "application/pdf") return file.type;
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
    return text.includes("\0") ? null : "text/plain";
  } catch {
    return null; // not UTF-8, or it cannot be read
  }
}

/**
 * @param {File} file
 * @returns {Promise<string>}
 */
function base64(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => {
      const address = String(reader.result);
      resolve(address.slice(address.indexOf(",") + 1));
    };
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}
