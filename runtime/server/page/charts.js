// Small line charts of the last minute.

const POINTS = 240;

export class Chart {
  constructor(id, names) {
    this.canvas = document.getElementById(`c-${id}`);
    this.value = document.getElementById(`v-${id}`);
    this.series = names.map(() => []);
  }

  // One value for each series; `text` is shown beside the title, `most` the least height of the scale.
  push(values, text, most) {
    values.forEach((value, i) => {
      this.series[i].push(value);
      if (this.series[i].length > POINTS) this.series[i].shift();
    });
    this.value.textContent = text;
    this.draw(most);
  }

  draw(most) {
    const { canvas } = this;
    const scale = devicePixelRatio;
    const [width, height] = [canvas.clientWidth * scale, canvas.clientHeight * scale];
    if (!width) return;
    if (canvas.width !== width) [canvas.width, canvas.height] = [width, height];
    const pen = canvas.getContext("2d");
    pen.clearRect(0, 0, width, height);
    const top = Math.max(most, ...this.series.flat()) * 1.05;
    const style = getComputedStyle(document.documentElement);
    this.series.forEach((points, i) => {
      pen.beginPath();
      points.forEach((value, x) => pen.lineTo((width * (x + POINTS - points.length)) / (POINTS - 1), height - (value / top) * (height - 2) - 1));
      pen.strokeStyle = style.getPropertyValue(i ? "--quiet" : "--accent");
      pen.lineWidth = 1.5 * scale;
      pen.stroke();
    });
  }
}
