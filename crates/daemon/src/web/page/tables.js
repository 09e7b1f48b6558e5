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

/** By row of the page: what its table knows of it. */
const lines = new WeakMap();
/** Notes which rows are in the window or near it. A row that comes near shows its newest values at once. */
const sight = new IntersectionObserver((seen) => {
  for (const { target, isIntersecting } of seen) {
    const line = lines.get(target);
    line.isNear = isIntersecting;
    if (isIntersecting) fill(line);
  }
}, { rootMargin: "300px 0px" });

/** A table that keeps its rows by key, so that a focused button stays focused when the values change. Each row keeps its
 * text nodes: 200 rows change four times a second, and looking for a cell, or replacing its node, costs more than the text.
 * The texts of rows out of sight cost their part of each layout, so a table may fill these rows in turn. */
export class Table {
  /** `columns`: [title, kind] with the kind "text", "number" or ""; the first column is the row's header. `farRows`: rows out
   * of sight that an update fills. */
  constructor(place, title, columns, empty, farRows = MOST_ROWS) {
    this.farRows = farRows;
    this.columns = columns;
    this.title = title;
    this.empty = empty;
    /** By key: the row, its button if it has one, its text nodes, its newest values, and what is shown of it. */
    this.lines = new Map();
    /** Counts the fillings of rows out of sight. */
    this.turn = 0;
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
    for (const [key, line] of this.lines) {
      if (!keys.has(key)) {
        sight.unobserve(line.row);
        line.row.remove();
        this.lines.delete(key);
      }
    }
    const far = [];
    let next = this.body.firstElementChild;
    for (const row of shown) {
      const line = this.lines.get(row.key) ?? this.#add(row);
      line.newest = row;
      if (line.isNear) fill(line);
      else far.push(line);
      if (line.row === next) next = next.nextElementSibling;
      else this.body.insertBefore(line.row, next);
    }
    for (let count = Math.min(far.length, this.farRows); count > 0; count -= 1) {
      this.turn += 1;
      fill(far[this.turn % far.length]);
    }
  }

  #add(row) {
    const texts = row.cells.map(() => document.createTextNode(""));
    const button = row.press ? element("button", { type: "button", onclick: row.press }, texts[0]) : null;
    const cells = texts.map((text, column) => this.#cell(column, column === 0 && button ? button : text));
    // Near until the browser says otherwise, so that the first values are shown.
    const line = { row: element("tr", {}, ...cells), button, texts, newest: row, isNear: true, alert: false, pressed: null };
    this.lines.set(row.key, line);
    lines.set(line.row, line);
    sight.observe(line.row);
    return line;
  }

  #cell(column, content) {
    const className = this.columns[column][1];
    return column > 0 ? element("td", { className }, content) : element("th", { scope: "row", className }, content);
  }
}

/** Shows the newest values of a line; touches only what differs. */
function fill(line) {
  const row = line.newest;
  row.cells.forEach((cell, column) => {
    const [node, text] = [line.texts[column], String(cell ?? "")];
    if (node.data !== text) node.data = text;
  });
  const [alert, pressed] = [Boolean(row.alert), Boolean(row.pressed)];
  if (line.alert !== alert) line.row.classList.toggle("alert", alert);
  if (line.button && line.pressed !== pressed) line.button.setAttribute("aria-pressed", String(pressed));
  [line.alert, line.pressed] = [alert, pressed];
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
