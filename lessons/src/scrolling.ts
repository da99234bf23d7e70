// Back and reload lead to the place on the page that was left; a link leads to the top.

interface Left {
  block: number; // of the page, the first that was in sight
  offset: number; // of its top from that of the window
  height: number; // of the page, parts of which appear later
}

/** Keeps the place in each entry of the browser's history. */
export class Scrolling {
  private timer = 0;
  private shown = ""; // the page whose scrolling is noted

  constructor(private readonly content: HTMLElement) {
    history.scrollRestoration = "manual";
    addEventListener("scroll", () => {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.note(), 150);
    });
    addEventListener("click", () => this.note(), { capture: true }); // before a link is followed
  }

  /** Goes to where this entry of the history was left. Returns false if it is new. */
  restore(): boolean {
    const left = (history.state as { left?: Left } | null)?.left;
    this.content.style.minHeight = left ? `${left.height}px` : "";
    this.shown = pageInAddress();
    clearTimeout(this.timer);
    const block = left && this.blocks()[left.block];
    scrollTo(0, block ? scrollY + block.getBoundingClientRect().top - left.offset : 0); // whatever appears above it later
    return left !== undefined;
  }

  /** Lets the page have its own height again. */
  release(): void {
    this.content.style.minHeight = "";
  }

  private blocks(): Element[] {
    return [...this.content.querySelectorAll(".page > *")];
  }

  private note(): void {
    clearTimeout(this.timer);
    if (pageInAddress() !== this.shown) return; // the next page is about to be shown
    const blocks = this.blocks();
    const block = Math.max(0, blocks.findIndex((each) => each.getBoundingClientRect().bottom > 0));
    const left: Left = { block, offset: blocks[block]?.getBoundingClientRect().top ?? 0, height: this.content.offsetHeight };
    history.replaceState({ ...(history.state as object | null), left }, "");
  }
}

function pageInAddress(): string {
  return location.hash.split("?")[0];
}
