// Elements and tables. All values of the daemon become text nodes: names of applications are not trusted.

/** An element with these properties and children (elements or text). */
export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  Object.assign(made, properties);
  made.append(...children.filter((child) => child !== null));
  return made;
}

/** Sets a text only if it differs, so that selections and screen readers are not disturbed. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** At most this number of rows; the caption tells how many there are. */
const MOST_ROWS = 200;

/** A table that keeps its rows by key, so that a focused button stays focused when the values change. */
export class Table {
  /** `columns`: [title, kind] with the kind "text", "number" or ""; the first column is the row's header. */
  constructor(place, title, columns, empty) {
    this.columns = columns;
    this.title = title;
    this.empty = empty;
    this.rows = new Map();
    this.caption = element("caption");
    const heads = columns.map(([name, kind]) => element("th", { scope: "col", className: kind }, name));
    this.head = element("thead", {}, element("tr", {}, ...heads));
    this.body = element("tbody");
    this.place = place;
    this.place.className = "scroll";
    this.place.append(element("table", {}, this.caption, this.head, this.body));
    this.update([]);
  }

  /** `rows`: [{ key, cells, alert, press, pressed }], the cells as text. */
  update(rows) {
    const shown = rows.slice(0, MOST_ROWS);
    const count = rows.length > MOST_ROWS ? `${rows.length}, the first ${MOST_ROWS} are shown` : `${rows.length}`;
    setText(this.caption, rows.length ? `${this.title} (${count})` : `${this.title}: ${this.empty}`);
    this.head.hidden = rows.length === 0;
    const keys = new Set(shown.map((row) => row.key));
    for (const [key, row] of this.rows) {
      if (!keys.has(key)) {
        row.remove();
        this.rows.delete(key);
      }
    }
    shown.forEach((row, index) => this.#place(row, index));
  }

  #place(row, index) {
    let line = this.rows.get(row.key);
    if (!line) {
      line = element("tr", {}, ...row.cells.map((_, column) => this.#cell(row, column)));
      this.rows.set(row.key, line);
    }
    line.classList.toggle("alert", Boolean(row.alert));
    row.cells.forEach((text, column) => setText(line.cells[column].querySelector("button") ?? line.cells[column], text));
    line.querySelector("button")?.setAttribute("aria-pressed", String(Boolean(row.pressed)));
    if (this.body.rows[index] !== line) this.body.insertBefore(line, this.body.rows[index] ?? null);
  }

  #cell(row, column) {
    const className = this.columns[column][1];
    if (column > 0) return element("td", { className });
    const button = row.press ? element("button", { type: "button", onclick: row.press }) : null;
    return element("th", { scope: "row", className }, button);
  }
}

export function percent(share) {
  return `${(100 * share).toFixed(1)} %`;
}

export function duration(ns) {
  if (ns >= 1e9) return `${+(ns / 1e9).toFixed(2)} s`;
  if (ns >= 1e6) return `${+(ns / 1e6).toFixed(2)} ms`;
  return `${+(ns / 1e3).toFixed(1)} µs`;
}

export function bytes(amount) {
  if (amount >= 1 << 30) return `${(amount / (1 << 30)).toFixed(1)} GiB`;
  if (amount >= 1 << 20) return `${(amount / (1 << 20)).toFixed(1)} MiB`;
  return `${(amount / 1024).toFixed(1)} KiB`;
}

export function rate(bps) {
  return bps >= 1e6 ? `${+(bps / 1e6).toFixed(2)} Mbit/s` : `${+(bps / 1e3).toFixed(1)} kbit/s`;
}
