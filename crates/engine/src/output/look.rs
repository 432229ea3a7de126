//! How a program wants its text to look: the colours and the weight that its sequences (SGR) ask
//! for.
//!
//! Only what cannot hide or move anything is kept: sixteen colours, weight, slant, underline,
//! exchange of the colours. A colour of 256 or of millions becomes the nearest of the sixteen, so
//! that a look takes two bytes beside each character, and follows the colours of whoever looks.

/// The look of a character.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TextLook(u16);

const FRONT: u16 = 0;
const BACK: u16 = 5;
const BOLD: u16 = 1 << 10;
const FAINT: u16 = 1 << 11;
const ITALIC: u16 = 1 << 12;
const UNDERLINED: u16 = 1 << 13;
const REVERSED: u16 = 1 << 14;

/// The sixteen colours as most terminals show them.
const SIXTEEN: [[u8; 3]; 16] = [
    [0, 0, 0],
    [205, 0, 0],
    [0, 205, 0],
    [205, 205, 0],
    [0, 0, 238],
    [205, 0, 205],
    [0, 205, 205],
    [229, 229, 229],
    [127, 127, 127],
    [255, 0, 0],
    [0, 255, 0],
    [255, 255, 0],
    [92, 92, 255],
    [255, 0, 255],
    [0, 255, 255],
    [255, 255, 255],
];

impl TextLook {
    /// The colour of the text, of sixteen; none if it is that of all text.
    pub fn front(self) -> Option<u8> {
        self.colour(FRONT)
    }

    /// The colour behind the text.
    pub fn back(self) -> Option<u8> {
        self.colour(BACK)
    }

    /// Whether it is bold.
    pub fn is_bold(self) -> bool {
        self.0 & BOLD != 0
    }

    /// Whether it is faint.
    pub fn is_faint(self) -> bool {
        self.0 & FAINT != 0
    }

    /// Whether it is slanted.
    pub fn is_italic(self) -> bool {
        self.0 & ITALIC != 0
    }

    /// Whether it is underlined.
    pub fn is_underlined(self) -> bool {
        self.0 & UNDERLINED != 0
    }

    /// Whether its two colours are exchanged.
    pub fn is_reversed(self) -> bool {
        self.0 & REVERSED != 0
    }

    fn colour(self, place: u16) -> Option<u8> {
        let bits = (self.0 >> place) & 0x1f;
        (bits & 0x10 != 0).then(|| u8::try_from(bits & 0xf).unwrap_or(0))
    }

    fn set_colour(&mut self, place: u16, colour: Option<u8>) {
        let bits = colour.map_or(0, |colour| 0x10 | u16::from(colour & 0xf));
        self.0 = (self.0 & !(0x1f << place)) | (bits << place);
    }

    fn set(&mut self, bits: u16, is_on: bool) {
        self.0 = if is_on { self.0 | bits } else { self.0 & !bits };
    }

    /// The look after a sequence with these parameters; what is none of them changes nothing.
    pub(super) fn after(mut self, parameters: &[u8]) -> Self {
        if !parameters.iter().all(|byte| matches!(byte, b'0'..=b'9' | b';' | b':')) {
            return self;
        }
        let mut groups = parameters.split(|byte| *byte == b';').map(numbers);
        while let Some(group) = groups.next() {
            let number = group.first().copied().unwrap_or(0);
            match number {
                38 | 48 => {
                    let place = if number == 38 { FRONT } else { BACK };
                    // Either in one group, or in the groups that follow.
                    let rest = group.get(1..).filter(|rest| !rest.is_empty());
                    let colour = match rest {
                        Some(rest) => in_group(rest),
                        None => in_groups(|| groups.next().and_then(|it| it.first().copied())),
                    };
                    if let Some(colour) = colour {
                        self.set_colour(place, Some(colour));
                    }
                }
                4 => self.set(UNDERLINED, group.get(1) != Some(&0)),
                number => self.take(number),
            }
        }
        self
    }

    fn take(&mut self, number: u16) {
        let small = |from: u16| u8::try_from(number - from).unwrap_or(0);
        match number {
            0 => *self = Self::default(),
            1 => self.set(BOLD, true),
            2 => self.set(FAINT, true),
            3 => self.set(ITALIC, true),
            7 => self.set(REVERSED, true),
            22 => self.set(BOLD | FAINT, false),
            23 => self.set(ITALIC, false),
            24 => self.set(UNDERLINED, false),
            27 => self.set(REVERSED, false),
            30..=37 => self.set_colour(FRONT, Some(small(30))),
            39 => self.set_colour(FRONT, None),
            40..=47 => self.set_colour(BACK, Some(small(40))),
            49 => self.set_colour(BACK, None),
            90..=97 => self.set_colour(FRONT, Some(small(90) + 8)),
            100..=107 => self.set_colour(BACK, Some(small(100) + 8)),
            _ => {}
        }
    }

    /// The look of a cell of a terminal's screen.
    pub(super) fn of_cell(cell: &vt100::Cell) -> Self {
        let colour = |colour| match colour {
            vt100::Color::Default => None,
            vt100::Color::Idx(place) => Some(of_table(place)),
            vt100::Color::Rgb(red, green, blue) => Some(nearest([red, green, blue])),
        };
        let mut look = Self::default();
        look.set_colour(FRONT, colour(cell.fgcolor()));
        look.set_colour(BACK, colour(cell.bgcolor()));
        look.set(BOLD, cell.bold());
        look.set(FAINT, cell.dim());
        look.set(ITALIC, cell.italic());
        look.set(UNDERLINED, cell.underline());
        look.set(REVERSED, cell.inverse());
        look
    }
}

/// The numbers of a group; what is left out is zero.
fn numbers(group: &[u8]) -> Vec<u16> {
    let number = |digits: &[u8]| {
        digits.iter().fold(0u16, |sum, digit| {
            sum.saturating_mul(10).saturating_add(u16::from(digit.saturating_sub(b'0')))
        })
    };
    group.split(|byte| *byte == b':').map(number).collect()
}

fn byte(number: u16) -> u8 {
    u8::try_from(number).unwrap_or(u8::MAX)
}

/// A colour in the numbers after a `38:` or `48:`.
fn in_group(rest: &[u16]) -> Option<u8> {
    match rest {
        [5, place, ..] => Some(of_table(byte(*place))),
        // The number of a colour space may stand between.
        [2, red, green, blue] | [2, _, red, green, blue, ..] => {
            Some(nearest([byte(*red), byte(*green), byte(*blue)]))
        }
        _ => None,
    }
}

/// A colour in the numbers that follow a `38` or `48`.
fn in_groups(mut next: impl FnMut() -> Option<u16>) -> Option<u8> {
    match next()? {
        5 => Some(of_table(byte(next()?))),
        2 => {
            let (red, green, blue) = (next()?, next()?, next()?);
            Some(nearest([byte(red), byte(green), byte(blue)]))
        }
        _ => None,
    }
}

/// A colour of the 256: the sixteen, a cube of six steps, greys.
fn of_table(place: u8) -> u8 {
    let level = |step: u8| if step == 0 { 0 } else { 55 + step * 40 };
    match place {
        0..16 => place,
        16..232 => {
            let at = place - 16;
            nearest([level(at / 36), level(at / 6 % 6), level(at % 6)])
        }
        232.. => nearest([8 + (place - 232) * 10; 3]),
    }
}

/// The nearest of the sixteen.
fn nearest(colour: [u8; 3]) -> u8 {
    let distance = |known: &[u8; 3]| -> u32 {
        let apart = known.iter().zip(colour).map(|(one, other)| u32::from(one.abs_diff(other)));
        apart.map(|it| it * it).sum()
    };
    let found = (0..).zip(&SIXTEEN).min_by_key(|(_, known)| distance(known));
    found.map_or(7, |(place, _)| place)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(parameters: &str) -> TextLook {
        TextLook::default().after(parameters.as_bytes())
    }

    #[test]
    fn colours_are_those_that_were_asked_for_or_the_nearest() {
        for (parameters, front, back) in [
            ("31", Some(1), None),
            ("1;97;44", Some(15), Some(4)),
            ("38;5;9", Some(9), None),
            ("38;5;196", Some(9), None),
            ("38:5:46", Some(10), None),
            ("48;2;10;10;10", None, Some(0)),
            ("38:2::250:250:250", Some(15), None),
            ("38:2:0:200:0;41", Some(2), Some(1)),
            ("31;42;0", None, None),
            ("31;39", None, None),
            ("38;5", None, None),
            ("38;9;31", Some(1), None),
            ("99999999;35", Some(5), None),
            (";36", Some(6), None),
            ("31<", None, None),
        ] {
            assert_eq!(
                (look(parameters).front(), look(parameters).back()),
                (front, back),
                "{parameters}"
            );
        }
    }

    #[test]
    fn weight_and_slant_come_and_go() {
        let all = look("1;2;3;4;7");
        assert!(all.is_bold() && all.is_faint() && all.is_italic());
        assert!(all.is_underlined() && all.is_reversed());
        assert_eq!(all.after(b"22;23;24;27"), TextLook::default());
        assert_eq!(all.after(b""), TextLook::default());
        assert!(look("4:3").is_underlined() && !look("4;4:0").is_underlined());
        // What hides text, or lets it blink, is not there.
        assert_eq!(look("5;6;8;21;53"), TextLook::default());
    }
}
