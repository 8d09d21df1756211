"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const all = (selector, from = document) => Array.from(from.querySelectorAll(selector));

  // --- light and dark -------------------------------------------------------------------------
  const theme = document.getElementById("theme");
  const setDark = (dark) => {
    root.dataset.theme = dark ? "dark" : "light";
    theme.setAttribute("aria-pressed", String(dark));
    theme.textContent = dark ? "Light" : "Dark";
    strips.forEach((strip) => strip.draw());
  };
  const strips = [];
  // paper is white: what the script draws is drawn anew for it
  let dark = false;
  addEventListener("beforeprint", () => { dark = root.dataset.theme === "dark"; setDark(false); });
  addEventListener("afterprint", () => setDark(dark));
  theme.addEventListener("click", () => setDark(root.dataset.theme !== "dark"));

  // --- tables: sort, filter, copy, a row as SQL -------------------------------------------------
  const UNITS = { B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40 };
  const sortKey = (text) => {
    const found = /^(-?[\d.]+(?:e[+-]?\d+)?)\s*([KMGT]?i?B)?/i.exec(text);
    return found ? Number(found[1]) * (UNITS[found[2]] || 1) : null;
  };
  const cells = (row) => Array.from(row.cells).filter((cell) => !cell.classList.contains("of-sql"));
  // A cell that a spreadsheet would run as a formula is made inert; numbers stay numbers.
  const csvCell = (text) => {
    const safe = /^[=+@\t\r]|^-(?![\d.])/.test(text) ? `'${text}` : text;
    return /[",\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  const copy = async (text, button) => {
    let done = false;
    try {
      await navigator.clipboard.writeText(text);
      done = true;
    } catch {
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      done = document.execCommand("copy");
      area.remove();
    }
    const before = button.textContent;
    button.textContent = done ? "Copied" : "Not allowed here";
    setTimeout(() => { button.textContent = before; }, 1500);
  };
  // `class=6` is a cell of a column, any other word is part of the row's text
  const columnOf = (table, word) => word.includes("=") ? all("thead th", table).findIndex((head) =>
    head.textContent.trim().toLowerCase() === word.slice(0, word.indexOf("="))) : -1;
  const applyFilter = (table) => {
    const words = table.querySelector(".filter").value.toLowerCase().split(/\s+/).filter(Boolean)
      .map((word) => [columnOf(table, word), word]);
    const rows = all("tbody tr", table);
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every(([column, word]) => column < 0 ? text.includes(word)
        : row.cells[column].textContent.trim().toLowerCase() === word.slice(word.indexOf("=") + 1));
      shown += row.hidden ? 0 : 1;
    }
    const few = rows.length <= 5 && shown === rows.length;
    table.querySelector(".count").textContent = few ? "" : `${shown} of ${rows.length} rows`;
  };
  // what a mark filters: every table with that column, and again all rows
  const chip = document.getElementById("chip");
  let chosen = "";
  const choose = (word) => {
    const before = chosen;
    chosen = word;
    for (const table of all(".table")) {
      const filter = table.querySelector(".filter");
      if (columnOf(table, word || before) < 0) continue;
      filter.value = word;
      applyFilter(table);
    }
    chip.hidden = !word;
    chip.firstElementChild.textContent = `Tables show ${word.replace("=", " ")} only.`;
  };
  chip.querySelector("button").addEventListener("click", () => choose(""));
  const dialog = document.getElementById("query");
  for (const button of all(".sql")) {
    button.addEventListener("click", () => {
      dialog.querySelector("pre").textContent = button.dataset.sql;
      dialog.showModal();
    });
  }
  dialog.querySelector(".copy-sql").addEventListener("click", (event) =>
    copy(dialog.querySelector("pre").textContent, event.target));
  for (const table of all(".table")) {
    const head = all("thead th", table);
    const body = table.querySelector("tbody");
    head.forEach((cell, column) => {
      const button = cell.querySelector(".sort");
      if (!button) return;
      button.addEventListener("click", () => {
        const ascending = cell.getAttribute("aria-sort") === "descending";
        head.forEach((other) => other.removeAttribute("aria-sort"));
        cell.setAttribute("aria-sort", ascending ? "ascending" : "descending");
        const keyed = Array.from(body.rows).map((row) => {
          const text = row.cells[column].textContent.trim();
          return { row, text, number: sortKey(text) };
        });
        keyed.sort((a, b) => {
          if (a.number === null || b.number === null) {
            if (a.number !== b.number) return a.number === null ? 1 : -1; // unknown comes last
            return (ascending ? 1 : -1) * a.text.localeCompare(b.text);
          }
          return (ascending ? 1 : -1) * (a.number - b.number);
        });
        body.append(...keyed.map((one) => one.row));
      });
    });
    table.querySelector(".filter").addEventListener("input", () => applyFilter(table));
    table.querySelector(".copy").addEventListener("click", (event) => {
      const rows = [table.querySelector("thead tr"), ...Array.from(body.rows).filter((r) => !r.hidden)];
      const text = rows.map((row) => cells(row)
        .map((cell) => csvCell(cell.textContent.trim())).join(",")).join("\n");
      copy(`${text}\n`, event.target);
    });
    applyFilter(table);
  }

  // --- figures: what a mark says, what a click filters, series on and off -----------------------
  const tip = document.getElementById("tip");
  const showTip = (text, x, y) => {
    tip.textContent = text;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - box.width - 8))}px`;
    tip.style.top = `${Math.max(4, Math.min(y + 14, innerHeight - box.height - 8))}px`;
  };
  const hideTip = () => { tip.hidden = true; };
  for (const [key, figure] of Object.entries(data.figures)) {
    const place = document.getElementById(key);
    const marks = [];
    for (const mark of all("[data-mark]", place)) { // a mark stands in the wide and the narrow form
      const id = mark.dataset.mark;
      const text = figure.marks[id];
      if (text === undefined) continue;
      mark.classList.add("mark");
      mark.setAttribute("tabindex", "-1");
      mark.addEventListener("pointermove", (event) => showTip(text, event.clientX, event.clientY));
      mark.addEventListener("pointerleave", hideTip);
      mark.addEventListener("focus", () => {
        const box = mark.getBoundingClientRect();
        showTip(text, box.right, box.bottom);
      });
      mark.addEventListener("blur", hideTip);
      marks.push(mark);
      const wanted = figure.filters[id];
      if (wanted) mark.addEventListener("click", () => choose(chosen === wanted ? "" : wanted));
    }
    for (const map of figure.cells.length ? all("[data-mark=heat-map]", place) : []) {
      map.classList.add("mark");
      map.addEventListener("pointermove", (event) => {
        const box = map.getBoundingClientRect();
        const part = (at, from, size, count) => Math.max(0, Math.min(count - 1, Math.floor((at - from) / size * count)));
        const row = figure.cells[part(event.clientY, box.top, box.height, figure.cells.length)];
        showTip(row[part(event.clientX, box.left, box.width, row.length)], event.clientX, event.clientY);
      });
      map.addEventListener("pointerleave", hideTip);
    }
    place.querySelector(".drawing").addEventListener("keydown", (event) => {
      const shown = marks.filter((mark) => mark.getClientRects().length);
      const at = shown.indexOf(document.activeElement);
      const to = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1 }[event.key];
      if (to !== undefined && shown.length) {
        event.preventDefault();
        shown[(to + shown.length) % shown.length].focus();
      } else if (event.key === "Enter" && at >= 0) shown[at].dispatchEvent(new MouseEvent("click"));
    });
    for (const box of all("[data-switch]", place)) {
      box.addEventListener("change", () => {
        for (const mark of all("[data-mark]", place)) {
          if (mark.dataset.mark === box.dataset.switch) mark.style.display = box.checked ? "" : "none";
        }
      });
    }
  }
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hideTip(); });

  // --- the timeline of all ranks ---------------------------------------------------------------
  const unpack = async (text, Kind) => {
    const packed = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Kind(await new Response(stream).arrayBuffer());
  };
  const FOOT = 18; // CSS pixels of the axis below the lanes
  class Strip {
    constructor(place, source) {
      this.place = place;
      this.source = source;
      this.canvas = place.querySelector("canvas");
      this.status = place.querySelector(".window");
      this.frames = [];
    }

    async load() {
      const s = this.source;
      [this.step, this.length, this.wait, this.klass, this.call] = await Promise.all([
        unpack(s.step, Uint32Array), unpack(s.length, Uint32Array), unpack(s.wait, Uint32Array),
        unpack(s.class, Uint16Array), unpack(s.call, Uint32Array)]);
      // starts are stored as steps from the kernel before on the same rank
      this.start = new Float64Array(this.step.length);
      // the latest end up to each kernel: streams of a rank overlap, so ends alone are in no order
      this.reach = new Float64Array(this.step.length);
      for (let r = 0; r < s.ranks.length; r += 1) {
        let at = s.first[r];
        let reach = 0;
        for (let i = s.offsets[r]; i < s.offsets[r + 1]; i += 1) {
          at += this.step[i];
          this.start[i] = at;
          reach = Math.max(reach, at + this.length[i]);
          this.reach[i] = reach;
        }
      }
      this.from = 0;
      this.to = s.span;
      this.wire();
      this.draw();
    }

    // no kernel of rank r before this one ends after time t
    seek(r, t) {
      let low = this.source.offsets[r];
      let high = this.source.offsets[r + 1];
      while (low < high) {
        const middle = (low + high) >> 1;
        if (this.reach[middle] <= t) low = middle + 1; else high = middle;
      }
      return low;
    }

    colours() {
      const style = getComputedStyle(root);
      const number = (name) => {
        const hex = style.getPropertyValue(name).trim().slice(1);
        const full = hex.length === 3 ? hex.replace(/./g, "$&$&") : hex;
        const rgb = parseInt(full, 16);
        return (0xff000000 | ((rgb & 0xff) << 16) | (rgb & 0xff00) | (rgb >> 16)) >>> 0;
      };
      return { paper: number("--paper"), wait: number("--wait"), transfer: number("--transfer"),
        unknown: number("--unknown"), ink: style.getPropertyValue("--ink") };
    }

    draw() {
      if (!this.start) return;
      const began = performance.now();
      const s = this.source;
      const ratio = Math.min(devicePixelRatio || 1, 2);
      const width = Math.max(1, Math.round(this.canvas.clientWidth * ratio));
      const height = Math.max(1, Math.round(this.canvas.clientHeight * ratio));
      if (this.canvas.width !== width || this.canvas.height !== height) {
        this.canvas.width = width;
        this.canvas.height = height;
      }
      const context = this.canvas.getContext("2d", { alpha: false });
      const colours = this.colours();
      const margin = Math.round(64 * ratio);
      const plot = width - margin;
      const image = context.createImageData(width, height);
      const pixels = new Uint32Array(image.data.buffer);
      pixels.fill(colours.paper);
      const lane = (height - Math.round(FOOT * ratio)) / s.ranks.length;
      const scale = plot / (this.to - this.from);
      const line = new Uint32Array(plot);
      for (let r = 0; r < s.ranks.length; r += 1) {
        line.fill(colours.paper);
        const end = s.offsets[r + 1];
        for (let i = this.seek(r, this.from); i < end && this.start[i] < this.to; i += 1) {
          const known = this.wait[i] !== 0xffffffff;
          const a = Math.max(0, Math.floor((this.start[i] - this.from) * scale));
          const b = Math.min(plot, Math.ceil((this.start[i] + this.length[i] - this.from) * scale));
          if (b - a <= 1) { // a single pixel shows what most of the kernel is
            const most = this.wait[i] * 2 > this.length[i] ? colours.wait : colours.transfer;
            line[a] = known ? most : colours.unknown;
          } else if (known) {
            const m = Math.max(a, Math.min(b, Math.round((this.start[i] + this.wait[i] - this.from) * scale)));
            line.fill(colours.wait, a, m);
            line.fill(colours.transfer, m, b);
          } else line.fill(colours.unknown, a, b);
        }
        const top = Math.round(r * lane + Math.min(1, lane / 8));
        const bottom = Math.max(top + 1, Math.round((r + 1) * lane - Math.min(1, lane / 8)));
        for (let y = top; y < bottom && y < height; y += 1) pixels.set(line, y * width + margin);
      }
      context.putImageData(image, 0, 0);
      this.arrows(context, colours, margin, lane, scale);
      context.fillStyle = colours.ink;
      context.font = `${Math.round(11 * ratio)}px system-ui, sans-serif`;
      context.textBaseline = "middle";
      const every = Math.max(1, Math.ceil((14 * ratio) / lane));
      for (let r = 0; r < s.ranks.length; r += every) {
        context.fillText(s.ranks[r], 2, (r + 0.5) * lane);
      }
      this.times(context, colours, margin, scale, ratio);
      const show = (steps) => `${Number((steps * s.unit / 1e6).toPrecision(6))} ms`;
      this.status.textContent = `${show(this.from)} to ${show(this.to)}, ${show(this.to - this.from)} wide`;
      this.frames.push(performance.now() - began);
      this.canvas.dataset.frame = this.frames[this.frames.length - 1].toFixed(2);
      clearTimeout(this.later);
      this.later = setTimeout(() => this.summarise(), 120);
    }

    // the axis of time below the lanes, in ms
    times(context, colours, margin, scale, ratio) {
      const unit = this.source.unit / 1e6;
      const least = (100 * ratio / scale) * unit; // ms between two labels
      const ten = 10 ** Math.floor(Math.log10(least));
      const step = ten * [1, 2, 5, 10].find((factor) => factor * ten >= least);
      const top = context.canvas.height - Math.round(FOOT * ratio);
      context.fillRect(margin, top, context.canvas.width - margin, 1);
      for (let n = Math.ceil(this.from * unit / step); n * step <= this.to * unit; n += 1) {
        const x = Math.round(margin + (n * step / unit - this.from) * scale);
        const text = `${Number((n * step).toPrecision(9))} ms`;
        if (x + context.measureText(text).width + 4 > context.canvas.width) break;
        context.fillRect(x, top, 1, 4 * ratio);
        context.fillText(text, x + 3 * ratio, top + 9 * ratio);
      }
    }

    // from the rank that came last to those that waited for it, where few calls are in view
    arrows(context, colours, margin, lane, scale) {
      const s = this.source;
      const calls = new Map();
      let seen = 0;
      for (let r = 0; r < s.ranks.length; r += 1) {
        const end = s.offsets[r + 1];
        for (let i = this.seek(r, this.from); i < end && this.start[i] < this.to; i += 1) {
          if ((seen += 1) > 60 * s.ranks.length) return;
          const list = calls.get(this.call[i]) || [];
          list.push([r, i]);
          calls.set(this.call[i], list);
        }
      }
      context.strokeStyle = colours.ink;
      context.lineWidth = 1;
      for (const list of calls.values()) {
        if (list.length < 2) continue;
        const last = list.reduce((a, b) => (this.wait[b[1]] < this.wait[a[1]] ? b : a));
        const x = margin + (this.start[last[1]] - this.from) * scale;
        if (x < margin) continue; // began before the window
        for (const [r, i] of list) {
          if (r === last[0] || this.wait[i] === 0xffffffff || this.wait[i] * scale < 3) continue;
          const y = (r + 0.5) * lane;
          context.beginPath();
          context.moveTo(x, (last[0] + 0.5) * lane);
          context.lineTo(x, y);
          context.lineTo(x - 4, y - 3);
          context.stroke();
        }
      }
    }

    // the window shown, in numbers: the table below the drawing
    summarise() {
      const s = this.source;
      const body = this.place.querySelector("tbody");
      const rows = s.ranks.map((name, r) => {
        let kernels = 0, wait = 0, transfer = 0, unknown = 0;
        const end = s.offsets[r + 1];
        for (let i = this.seek(r, this.from); i < end && this.start[i] < this.to; i += 1) {
          kernels += 1;
          if (this.wait[i] === 0xffffffff) unknown += this.length[i];
          else { wait += this.wait[i]; transfer += this.length[i] - this.wait[i]; }
        }
        const ms = (value) => (value * s.unit / 1e6).toFixed(3);
        return [name, String(kernels), ms(wait), ms(transfer), ms(unknown)];
      });
      body.replaceChildren(...rows.map((texts) => {
        const row = document.createElement("tr");
        texts.forEach((text, column) => {
          const cell = document.createElement("td");
          cell.textContent = text;
          if (column) cell.className = "n";
          row.append(cell);
        });
        return row;
      }));
      applyFilter(this.place.querySelector(".table"));
    }

    move(part) {
      const width = this.to - this.from;
      const from = Math.max(0, Math.min(this.source.span - width, this.from + part * width));
      this.from = from;
      this.to = from + width;
      this.request();
    }

    zoom(factor, at = 0.5) {
      const width = Math.min(this.source.span, Math.max(100, (this.to - this.from) * factor));
      const centre = this.from + at * (this.to - this.from);
      this.from = Math.max(0, Math.min(this.source.span - width, centre - at * width));
      this.to = this.from + width;
      this.request();
    }

    request() {
      if (this.waiting) return;
      this.waiting = true;
      requestAnimationFrame(() => {
        this.waiting = false;
        this.draw();
      });
    }

    tell(event) {
      const box = this.canvas.getBoundingClientRect();
      const s = this.source;
      const r = Math.floor((event.clientY - box.top) / (box.height - FOOT) * s.ranks.length);
      const part = (event.clientX - box.left - 64) / (box.width - 64);
      if (r < 0 || r >= s.ranks.length || part < 0) return hideTip();
      const t = this.from + part * (this.to - this.from);
      const i = this.seek(r, t);
      if (i >= s.offsets[r + 1] || this.start[i] > t) return hideTip();
      const us = (value) => `${(value * s.unit / 1e3).toFixed(1)} us`;
      const known = this.wait[i] !== 0xffffffff;
      showTip(`${s.ranks[r]}\n${s.classes[this.klass[i]]}\n${us(this.length[i])}` +
        (known ? `, of which ${us(this.wait[i])} waiting` : ", waiting not known"),
      event.clientX, event.clientY);
    }

    wire() {
      const act = { in: () => this.zoom(0.5), out: () => this.zoom(2), left: () => this.move(-0.25),
        right: () => this.move(0.25), all: () => this.zoom(1e18) };
      for (const button of all("[data-do]", this.place)) {
        button.addEventListener("click", act[button.dataset.do]);
      }
      const at = (event) => {
        const box = this.canvas.getBoundingClientRect();
        return Math.max(0, Math.min(1, (event.clientX - box.left - 64) / (box.width - 64)));
      };
      this.canvas.addEventListener("wheel", (event) => {
        if (!event.ctrlKey && document.activeElement !== this.canvas) return; // the page scrolls
        event.preventDefault();
        this.zoom(event.deltaY > 0 ? 1.25 : 0.8, at(event));
      }, { passive: false });
      let dragged = null;
      this.canvas.addEventListener("pointerdown", (event) => {
        dragged = event.clientX;
        this.canvas.setPointerCapture(event.pointerId);
      });
      this.canvas.addEventListener("pointermove", (event) => {
        if (dragged === null) return this.tell(event);
        this.move((dragged - event.clientX) / (this.canvas.clientWidth - 64));
        dragged = event.clientX;
      });
      this.canvas.addEventListener("pointerup", () => { dragged = null; });
      this.canvas.addEventListener("pointerleave", hideTip);
      this.canvas.addEventListener("keydown", (event) => {
        const keys = { ArrowLeft: act.left, ArrowRight: act.right, "+": act.in, "-": act.out, Home: act.all };
        if (keys[event.key]) {
          event.preventDefault();
          keys[event.key]();
        }
      });
      new ResizeObserver(() => this.request()).observe(this.canvas);
    }
  }
  for (const [key, source] of Object.entries(data.strips)) {
    const strip = new Strip(document.getElementById(key), source);
    strips.push(strip);
    strip.load();
  }
  setDark(matchMedia("(prefers-color-scheme: dark)").matches);
  root.dataset.ready = "yes";
  globalThis.collscopeStrips = strips; // for tests of the drawing's pace
})();
