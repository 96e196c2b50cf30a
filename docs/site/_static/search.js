// Finds the pages that have some of the words, best first: Sphinx asks for all of them. A rare word
// counts more than a frequent one, one in the title of a page most, and generated pages less.
if (typeof Search !== "undefined") {
  const withAll = Search.performTermsSearch;
  Search.performTermsSearch = (words, excluded) => {
    const found = new Map();
    for (const word of words) {
      const pages = withAll(new Set([word]), excluded);
      const rarity = Math.log(1 + Search._index.docnames.length / pages.length);
      for (const page of pages) {
        const [name, title, , , score] = page;
        const inTitle = title.toLowerCase().includes(word) ? 2 : 1;
        const generated = name.startsWith("site/") ? 0.3 : 1;
        const entry = found.get(name) ?? Object.assign([...page], { 4: 0 });
        entry[4] += score * rarity * inTitle * generated;
        found.set(name, entry);
      }
    }
    // A page opens at the heading that has most of the words, if that is at least two.
    const most = new Map();
    for (const [heading, places] of Object.entries(Search._index.alltitles)) {
      const count = [...words].filter((word) => heading.toLowerCase().includes(word)).length;
      for (const [file, id] of places) {
        const page = found.get(Search._index.docnames[file]);
        if (!page || id === null || count < 2 || count <= (most.get(page) ?? 0)) continue;
        most.set(page, count);
        page[1] = `${Search._index.titles[file]} > ${heading}`;
        page[2] = `#${id}`;
      }
    }
    return [...found.values()];
  };
  // A page of the disk cannot fetch others to show parts of them.
  if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
}
