// One tooltip for the whole page.

const tip = document.getElementById("tip");

export function showTip(text, box) {
  tip.textContent = text;
  tip.hidden = false;
  const left = Math.min(box.left, innerWidth - tip.offsetWidth - 8);
  const below = box.bottom + 6 + tip.offsetHeight < innerHeight;
  tip.style.left = `${Math.max(left, 8)}px`;
  tip.style.top = `${below ? box.bottom + 6 : box.top - tip.offsetHeight - 6}px`;
}

export function hideTip() {
  tip.hidden = true;
}
