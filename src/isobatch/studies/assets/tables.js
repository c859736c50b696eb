// Tables that sort by a click on a heading.

// Up, down, and as it was.
function sortable(table) {
  const body = table.tBodies[0], original = [...body.rows];
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => head.firstElementChild.addEventListener("click", () => {
    const was = head.getAttribute("aria-sort");
    const next = was === null ? "ascending" : was === "ascending" ? "descending" : null;
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    if (next) head.setAttribute("aria-sort", next);
    const key = (row) => row.cells[column].dataset.sort;
    const compare = (a, b) => {
      if (key(a) === "" || key(b) === "") return (key(a) === "") - (key(b) === ""); // nothing comes last
      const [x, y] = [Number(key(a)), Number(key(b))];
      const words = Number.isNaN(x) || Number.isNaN(y);
      const order = words ? key(a).localeCompare(key(b), "en", { numeric: true }) : x - y;
      return next === "descending" ? -order : order;
    };
    body.append(...(next ? [...original].sort(compare) : original));
  }));
}

document.querySelectorAll("table.sortable").forEach(sortable);
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((each) => (each.open = true)));
