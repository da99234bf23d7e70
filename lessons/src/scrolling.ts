// Back and reload lead to the place on the page that was left; a link leads to the top.

interface Left {
  top: number;
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
    scrollTo(0, left?.top ?? 0);
    return left !== undefined;
  }

  /** Lets the page have its own height again. */
  release(): void {
    this.content.style.minHeight = "";
  }

  private note(): void {
    clearTimeout(this.timer);
    if (pageInAddress() !== this.shown) return; // the next page is about to be shown
    const left: Left = { top: scrollY, height: this.content.offsetHeight };
    history.replaceState({ ...(history.state as object | null), left }, "");
  }
}

function pageInAddress(): string {
  return location.hash.split("?")[0];
}
