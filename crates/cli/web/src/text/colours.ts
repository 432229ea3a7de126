// The colours of a terminal (SGR sequences) as classes and values of CSS.

export interface Look {
  /** A colour of the palette by number, or a value of CSS. */
  front: number | string | undefined;
  back: number | string | undefined;
  bold: boolean;
  faint: boolean;
  italic: boolean;
  underline: boolean;
  inverse: boolean;
}

export const PLAIN: Look = {
  front: undefined,
  back: undefined,
  bold: false,
  faint: false,
  italic: false,
  underline: false,
  inverse: false,
};

/** A colour of the 256: the first sixteen are the palette's. */
function ofTable(place: number): number | string {
  if (place < 16) return place;
  if (place >= 232) {
    const grey = 8 + (place - 232) * 10;
    return `rgb(${grey} ${grey} ${grey})`;
  }
  const level = (step: number): number => (step === 0 ? 0 : 55 + step * 40);
  const at = place - 16;
  return `rgb(${level(Math.floor(at / 36))} ${level(Math.floor(at / 6) % 6)} ${level(at % 6)})`;
}

/** The colour that `38` or `48` introduces, and how many numbers it takes. */
function extended(numbers: number[], at: number): [number | string | undefined, number] {
  const byte = (offset: number): number => Math.min(255, numbers[at + offset] ?? 0);
  if (numbers[at] === 5) return [ofTable(byte(1)), 2];
  if (numbers[at] === 2) return [`rgb(${byte(1)} ${byte(2)} ${byte(3)})`, 4];
  return [undefined, 0];
}

/** A look after a sequence of numbers. */
export function after(look: Look, parameters: string): Look {
  const numbers = parameters.split(/[;:]/).map((text) => Number.parseInt(text, 10) || 0);
  let next = { ...look };
  for (let at = 0; at < numbers.length; at += 1) {
    const number = numbers[at] ?? 0;
    if (number === 0) next = { ...PLAIN };
    else if (number === 1) next.bold = true;
    else if (number === 2) next.faint = true;
    else if (number === 3) next.italic = true;
    else if (number === 4) next.underline = true;
    else if (number === 7) next.inverse = true;
    else if (number === 22) next.bold = next.faint = false;
    else if (number === 23) next.italic = false;
    else if (number === 24) next.underline = false;
    else if (number === 27) next.inverse = false;
    else if (number >= 30 && number <= 37) next.front = number - 30;
    else if (number >= 40 && number <= 47) next.back = number - 40;
    else if (number >= 90 && number <= 97) next.front = number - 90 + 8;
    else if (number >= 100 && number <= 107) next.back = number - 100 + 8;
    else if (number === 39) next.front = undefined;
    else if (number === 49) next.back = undefined;
    else if (number === 38 || number === 48) {
      const [colour, taken] = extended(numbers, at + 1);
      if (number === 38) next.front = colour;
      else next.back = colour;
      at += taken;
    }
  }
  return next;
}

export interface Painted {
  classes: string;
  color: string | undefined;
  background: string | undefined;
}

/** A look as classes, and as values where no class can say it. */
export function painted(look: Look): Painted {
  const [front, back] = look.inverse ? [look.back, look.front] : [look.front, look.back];
  const classes: string[] = [];
  if (typeof front === "number") classes.push(`f${front}`);
  if (typeof back === "number") classes.push(`b${back}`);
  if (look.inverse && look.front === undefined && look.back === undefined) classes.push("inverse");
  if (look.bold) classes.push("bold");
  if (look.faint) classes.push("faint");
  if (look.italic) classes.push("italic");
  if (look.underline) classes.push("underline");
  return {
    classes: classes.join(" "),
    color: typeof front === "string" ? front : undefined,
    background: typeof back === "string" ? back : undefined,
  };
}
