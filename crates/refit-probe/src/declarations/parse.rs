//! Parses declarations.
//!
//! ```text
//! declarations := ((record | enumeration | alias) [';'] | '#' 'define' NAME [N] end of the line)*
//! alias        := 'typedef' specifier declarator (',' declarator)* ';'
//! specifier    := words of a number | record | enumeration | NAME
//! record       := ('struct' | 'union') [NAME] ['{' member* '}']
//! member       := specifier [field (',' field)*] ';'
//! field        := declarator [':' N] | ':' N
//! enumeration  := 'enum' [NAME] ['{' NAME ['=' N] (',' NAME ['=' N])* '}']
//! declarator   := '*'* (NAME | '(' declarator ')') ('[' [N] ']' | '(' … ')')*
//! ```
//!
//! `__attribute__((packed))` and `((aligned(N)))` may follow `struct`, a `}` and a field. `const`
//! and the like mean nothing.

use std::collections::BTreeSet;

use refit_analysis::types::Kind;

use super::constant;
use super::declared::{DEEPEST, Declarations, MOST_PARTS, Structure, Tag, Type};
use super::directive;
use super::layout::{self, Attributes, Member};
use super::tokens::{Token, Tokens, Wrong};
use super::words::{self, WORDS};
use crate::type_name::TypeName;

/// The most types that a script declares.
const MOST_TYPES: usize = 1 << 12;

/// Parses the declarations with which a script begins. Also returns where the rest of it begins.
///
/// # Errors
/// The part that is wrong.
pub(crate) fn parse(text: &str) -> Result<(Declarations, usize), Wrong> {
    let tokens = Tokens::new(text);
    let mut parser = Parser { tokens, known: Declarations::default(), deep: 0 };
    let begin = parser.all()?;
    Ok((parser.known, begin))
}

struct Parser<'t> {
    tokens: Tokens<'t>,
    known: Declarations,
    /// Number of types and declarators around.
    deep: usize,
}

impl<'t> Parser<'t> {
    fn all(&mut self) -> Result<usize, Wrong> {
        loop {
            while self.tokens.eat(";") {}
            let Some(token) = self.tokens.peek() else { return Ok(self.tokens.begin()) };
            match token.text {
                "struct" | "union" | "enum" => {
                    self.specifier()?;
                }
                "typedef" => self.alias()?,
                "#" => directive::parse(&mut self.tokens, &mut self.known)?,
                _ => return Ok(token.at),
            }
        }
    }

    fn alias(&mut self) -> Result<(), Wrong> {
        self.tokens.take();
        let base = self.specifier()?;
        loop {
            let (name, of) = self.declarator(base.clone())?;
            let text = name.text.to_owned();
            let builtin = TypeName { kind: None, name: text.clone(), pointers: 0 }.number();
            let builtin = builtin.map(|(bytes, signed)| Type::Number { bytes, signed });
            let before = self.known.names.get(&text).cloned().or(builtin);
            if before.is_some_and(|before| before != of) {
                return Err(name.wrong(format!("`{text}` is another type already")));
            }
            self.known.names.insert(text, of);
            if !self.tokens.eat(",") {
                break;
            }
        }
        self.tokens.expect(";")
    }

    /// Parses a type without `*` and the like.
    fn specifier(&mut self) -> Result<Type, Wrong> {
        let mut words: Vec<Token<'t>> = Vec::new();
        let mut found = None;
        while let Some(token) = self.tokens.peek().filter(Token::is_word) {
            match token.text {
                "const" | "volatile" | "restrict" | "__restrict" | "__extension__" => {}
                _ if found.is_some() => break,
                word if WORDS.contains(&word) => words.push(token),
                _ if !words.is_empty() => break,
                "struct" | "union" => {
                    found = Some(self.nested(Self::record)?);
                    continue;
                }
                "enum" => {
                    found = Some(self.enumeration()?);
                    continue;
                }
                name => found = Some(self.known_as(name).ok_or_else(|| unknown(&token))?),
            }
            self.tokens.take();
        }
        match (found, &words[..]) {
            (Some(of), _) => Ok(of),
            (None, [first, .., last]) => words::number(&words).ok_or_else(|| Wrong {
                at: first.at..last.at + last.text.len(),
                what: "these words are no type together".to_owned(),
            }),
            (None, [word]) => words::number(&words).ok_or_else(|| unknown(word)),
            (None, []) => Err(match self.tokens.peek() {
                Some(token) => token.wrong(format!("`{}` where a type has to be", token.text)),
                None => self.tokens.ends("type"),
            }),
        }
    }

    /// Returns the type with a name.
    fn known_as(&self, name: &str) -> Option<Type> {
        let builtin = || {
            let name = TypeName { kind: None, name: name.to_owned(), pointers: 0 };
            name.number().map(|(bytes, signed)| Type::Number { bytes, signed })
        };
        self.known.names.get(name).cloned().or_else(builtin)
    }

    /// Parses a part that can have another of its kind within it.
    fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T, Wrong>) -> Result<T, Wrong> {
        if self.deep >= DEEPEST {
            let what = format!("more than {DEEPEST} types within each other");
            return Err(match self.tokens.peek() {
                Some(token) => token.wrong(what),
                None => self.tokens.ends("type"),
            });
        }
        self.deep += 1;
        let parsed = parse(self);
        self.deep -= 1;
        parsed
    }

    fn record(&mut self) -> Result<Type, Wrong> {
        let Some(word) = self.tokens.take() else { return Err(self.tokens.ends("type")) };
        let kind = if word.text == "union" { Kind::Union } else { Kind::Structure };
        let mut attributes = self.attributes()?;
        let name = match self.tokens.peek() {
            Some(token) if token.is_word() => self.tokens.take(),
            _ => None,
        };
        let defines = self.tokens.sees("{");
        let index = self.tagged(kind, word, name, defines)?;
        if defines {
            self.tokens.take();
            let members = self.members(index)?;
            attributes.add(self.attributes()?);
            let body = layout::place(&members, kind == Kind::Union, attributes, &self.known);
            let body = body.ok_or_else(|| name.unwrap_or(word).wrong("it is too large"))?;
            self.known.structures[index].body = Some(body);
        }
        Ok(Type::Structure(index))
    }

    /// Returns the index of a structure, which is made unless it is there.
    fn tagged(
        &mut self,
        kind: Kind,
        word: Token<'_>,
        name: Option<Token<'_>>,
        defines: bool,
    ) -> Result<usize, Wrong> {
        let text = name.map_or("", |name| name.text);
        let whole = format!("{} {text}", word.text);
        match (self.known.tags.get(text), name) {
            (Some(&Tag::Structure(index)), Some(name)) => {
                if self.known.structures[index].kind != kind {
                    return Err(name.wrong(format!("`{text}` is no {} already", word.text)));
                }
                if defines && self.known.is_defined(index) {
                    return Err(name.wrong(format!("`{whole}` is defined twice")));
                }
                return Ok(index);
            }
            (Some(Tag::Enumeration { .. }), Some(name)) => {
                return Err(name.wrong(format!("`{text}` is an enumeration already")));
            }
            (_, None) if !defines => {
                return Err(word.wrong(format!("no name and no `{{` after `{}`", word.text)));
            }
            _ => {}
        }
        let index = self.known.structures.len();
        if index >= MOST_TYPES {
            return Err(word.wrong(format!("more than {MOST_TYPES} types")));
        }
        self.known.structures.push(Structure { kind, name: text.to_owned(), body: None });
        if name.is_some() {
            self.known.tags.insert(text.to_owned(), Tag::Structure(index));
        }
        Ok(index)
    }

    /// Parses the members of a structure, and the bracket behind them.
    fn members(&mut self, structure: usize) -> Result<Vec<Member<'t>>, Wrong> {
        let mut members: Vec<Member<'t>> = Vec::new();
        let mut names = BTreeSet::new();
        while !self.tokens.eat("}") {
            if self.tokens.peek().is_none() {
                return Err(self.tokens.ends("`}`"));
            }
            let begin = self.tokens;
            let base = self.specifier()?;
            let first = members.len();
            if self.tokens.sees(";") || self.tokens.sees("}") {
                self.without_name(base, begin, &mut members)?;
            } else {
                self.fields(&base, structure, &mut members)?;
            }
            for member in &members[first..] {
                let inner = match (&member.name, &member.of) {
                    (None, Type::Structure(inner)) => self.known.members(*inner),
                    (name, _) => name.iter().map(|name| name.text.to_owned()).collect(),
                };
                let at = member.name.or_else(|| begin.peek());
                for name in inner {
                    let twice = format!("the member `{name}` is there twice");
                    if let (false, Some(at)) = (names.insert(name), at) {
                        return Err(at.wrong(twice));
                    }
                }
            }
            if !self.tokens.sees("}") {
                self.tokens.expect(";")?;
                while self.tokens.eat(";") {}
            }
        }
        Ok(members)
    }

    /// Adds a structure whose members are those of the structure that it is in.
    fn without_name(
        &self,
        of: Type,
        begin: Tokens<'t>,
        members: &mut Vec<Member<'t>>,
    ) -> Result<(), Wrong> {
        match of {
            Type::Structure(index) if self.known.structures[index].name.is_empty() => {
                let (name, width, attributes) = (None, None, Attributes::default());
                members.push(Member { name, of, width, attributes });
                Ok(())
            }
            // It is declared only, as is an enumeration.
            Type::Structure(_) => Ok(()),
            Type::Number { .. } if begin.sees("enum") => Ok(()),
            _ => Err(begin.peek().map_or_else(
                || self.tokens.ends("member"),
                |token| token.wrong("a member without a name"),
            )),
        }
    }

    /// Parses the members of one type.
    fn fields(
        &mut self,
        base: &Type,
        structure: usize,
        members: &mut Vec<Member<'t>>,
    ) -> Result<(), Wrong> {
        loop {
            let begin = self.tokens.peek();
            let (name, of) = if self.tokens.sees(":") {
                (None, base.clone())
            } else {
                let (name, of) = self.declarator(base.clone())?;
                (Some(name), of)
            };
            let at = name.or(begin).ok_or_else(|| self.tokens.ends("member"))?;
            if self.known.size(&of).is_none() {
                return Err(at.wrong(self.why_no_size(&of, structure, at)));
            }
            let width = if self.tokens.eat(":") { Some(self.width(&of, name)?) } else { None };
            let attributes = self.attributes()?;
            if members.len() >= MOST_PARTS {
                return Err(at.wrong(format!("more than {MOST_PARTS} members")));
            }
            members.push(Member { name, of, width, attributes });
            if !self.tokens.eat(",") {
                return Ok(());
            }
        }
    }

    fn width(&mut self, of: &Type, name: Option<Token<'_>>) -> Result<u8, Wrong> {
        let at = self.tokens.peek();
        let width = constant::evaluate(&mut self.tokens, &self.known)?;
        let at = at.ok_or_else(|| self.tokens.ends("number of bits"))?;
        let Type::Number { bytes, .. } = *of else {
            return Err(at.wrong("bits of a type that is no number"));
        };
        let least = i64::from(name.is_some());
        let fits = (least..=i64::from(bytes) * 8).contains(&width);
        let width = u8::try_from(width).ok().filter(|_| fits);
        width.ok_or_else(|| {
            at.wrong(format!("a number of bits from {least} to {} has to be here", bytes * 8))
        })
    }

    fn why_no_size(&self, of: &Type, structure: usize, at: Token<'_>) -> String {
        let name = at.text;
        match of {
            Type::Nothing => format!("`{name}` has no type (void)"),
            Type::Function => format!("`{name}` is a function; write a pointer to one"),
            Type::Array(of, _) if self.known.size(of).is_none() => {
                self.why_no_size(of, structure, at)
            }
            Type::Structure(index) if *index == structure => {
                format!("`{name}` is the structure that contains it; write a pointer to it")
            }
            Type::Structure(index) => {
                let Structure { kind, name: of, .. } = &self.known.structures[*index];
                let word = if *kind == Kind::Union { "union" } else { "struct" };
                format!("the size of `{name}` is not known: define `{word} {of}` before it")
            }
            _ => format!("`{name}` is too large"),
        }
    }

    fn enumeration(&mut self) -> Result<Type, Wrong> {
        let Some(word) = self.tokens.take() else { return Err(self.tokens.ends("type")) };
        self.attributes()?;
        let name = match self.tokens.peek() {
            Some(token) if token.is_word() => self.tokens.take(),
            _ => None,
        };
        let there = name.and_then(|name| self.known.tags.get(name.text).copied());
        let at = name.unwrap_or(word);
        if !self.tokens.eat("{") {
            return match there {
                Some(Tag::Enumeration { bytes, signed }) => Ok(Type::Number { bytes, signed }),
                Some(Tag::Structure(_)) => Err(at.wrong(format!("`{}` is no enum", at.text))),
                None => Err(at.wrong(format!("`{}` is no enum that is known", at.text))),
            };
        }
        if there.is_some() {
            return Err(at.wrong(format!("`{}` is there twice", at.text)));
        }
        let [least, most] = self.constants()?;
        self.attributes()?;
        let wide = i32::try_from(least).is_err() || u32::try_from(most.max(0)).is_err();
        let wide = wide || least < 0 && i32::try_from(most).is_err();
        let (bytes, signed) = (if wide { 8 } else { 4 }, least < 0);
        if let Some(name) = name {
            let tag = Tag::Enumeration { bytes, signed };
            self.known.tags.insert(name.text.to_owned(), tag);
        }
        Ok(Type::Number { bytes, signed })
    }

    /// Parses constants, and the bracket behind them. Returns the least and the greatest.
    fn constants(&mut self) -> Result<[i64; 2], Wrong> {
        let (mut next, mut least, mut most) = (0_i64, 0, 0);
        while !self.tokens.eat("}") {
            let name = self.tokens.name("name of a constant")?;
            if self.tokens.eat("=") {
                next = constant::evaluate(&mut self.tokens, &self.known)?;
            }
            if self.known.constants.len() >= MOST_PARTS {
                return Err(name.wrong(format!("more than {MOST_PARTS} constants")));
            }
            if self.known.constants.insert(name.text.to_owned(), next).is_some() {
                return Err(name.wrong(format!("the constant `{}` is there twice", name.text)));
            }
            (least, most) = (least.min(next), most.max(next));
            next = next.wrapping_add(1);
            if !self.tokens.sees("}") {
                self.tokens.expect(",")?;
            }
        }
        Ok([least, most])
    }

    /// Parses a name and what is around it: `*`, `[N]`, brackets. Returns it with its type.
    fn declarator(&mut self, base: Type) -> Result<(Token<'t>, Type), Wrong> {
        self.nested(|parser| parser.declares(base))
    }

    fn declares(&mut self, mut of: Type) -> Result<(Token<'t>, Type), Wrong> {
        while let Some(token) = self.tokens.peek() {
            match token.text {
                "*" => of = Type::Pointer(Box::new(of)),
                "const" | "volatile" | "restrict" | "__restrict" => {}
                _ => break,
            }
            self.tokens.take();
            if depth(&of) > DEEPEST {
                return Err(token.wrong(format!("more than {DEEPEST} types within each other")));
            }
        }
        if !self.tokens.eat("(") {
            let name = self.tokens.name("name")?;
            let of = self.suffixes(of)?;
            return match depth(&of) {
                0..=DEEPEST => Ok((name, of)),
                _ => Err(name.wrong(format!("more than {DEEPEST} types within each other"))),
            };
        }
        // What is behind the brackets is applied first.
        let inner = self.tokens;
        self.tokens.close()?;
        let of = self.suffixes(of)?;
        let behind = std::mem::replace(&mut self.tokens, inner);
        let (name, of) = self.declarator(of)?;
        self.tokens.expect(")")?;
        self.tokens = behind;
        Ok((name, of))
    }

    /// Parses the lengths of arrays, and the parameters of a function.
    fn suffixes(&mut self, of: Type) -> Result<Type, Wrong> {
        if self.tokens.eat("(") {
            self.tokens.close()?;
            return Ok(Type::Function);
        }
        let mut lengths = Vec::new();
        while let Some(token) = self.tokens.peek().filter(|token| token.text == "[") {
            self.tokens.take();
            let length = if self.tokens.sees("]") {
                0
            } else {
                constant::evaluate(&mut self.tokens, &self.known)?
            };
            self.tokens.expect("]")?;
            let length = u64::try_from(length).ok().filter(|_| lengths.len() < DEEPEST);
            lengths.push(length.ok_or_else(|| token.wrong("the length is not possible"))?);
        }
        let arrays = lengths.into_iter().rev();
        Ok(arrays.fold(of, |of, length| Type::Array(Box::new(of), length)))
    }

    fn attributes(&mut self) -> Result<Attributes, Wrong> {
        let mut found = Attributes::default();
        while self.tokens.eat("__attribute__") {
            self.tokens.expect("(")?;
            self.tokens.expect("(")?;
            while !self.tokens.eat(")") {
                let name = self.tokens.name("attribute")?;
                match name.text.trim_matches('_') {
                    "packed" => found.packed = true,
                    "aligned" if self.tokens.eat("(") => {
                        let align = constant::evaluate(&mut self.tokens, &self.known)?;
                        let align = u64::try_from(align).ok().filter(|one| one.is_power_of_two());
                        let align = align.filter(|align| *align <= 1 << 16);
                        let align = align.ok_or_else(|| name.wrong("no power of two"))?;
                        found.aligned = found.aligned.max(align);
                        self.tokens.expect(")")?;
                    }
                    "aligned" => found.aligned = 16,
                    _ => {
                        return Err(name.wrong(format!(
                            "unknown attribute `{}` (known: packed, aligned(N))",
                            name.text
                        )));
                    }
                }
                if !self.tokens.sees(")") {
                    self.tokens.expect(",")?;
                }
            }
            self.tokens.expect(")")?;
        }
        Ok(found)
    }
}

fn unknown(token: &Token<'_>) -> Wrong {
    token.wrong(format!("unknown type `{}`", token.text))
}

/// Returns the number of types within each other.
fn depth(of: &Type) -> usize {
    match of {
        Type::Pointer(of) | Type::Array(of, _) => 1 + depth(of),
        _ => 0,
    }
}
