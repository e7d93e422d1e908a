//! Symbols of functions.

use object::LittleEndian as LE;
use object::elf;
use object::read::elf::Sym;

use super::elf::Elf;
use super::names::Names;

/// A symbol of a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Symbol {
    /// Entry of the function.
    pub address: u64,
    /// Its size in bytes; 0 if unknown.
    pub size: u64,
    /// Its name, without a version.
    pub name: Box<str>,
    /// Whether other files can refer to it at run time.
    pub dynamic: bool,
    /// Rank of the name: lower is better.
    pub rank: u8,
    /// Whether it is a resolver (IFUNC), which chooses the function.
    pub resolver: bool,
    /// Whether the table declares it a function; otherwise it is a global label.
    pub function: bool,
}

/// Reads the symbols of functions from both tables of the file.
pub(super) fn read(elf: &Elf) -> Vec<Symbol> {
    let mut symbols = table(elf, elf::SHT_SYMTAB);
    symbols.extend(table(elf, elf::SHT_DYNSYM));
    symbols
}

/// Returns the address of a variable by its name, from either table of the file.
pub(super) fn variable(elf: &Elf, wanted: &str) -> Option<u64> {
    [elf::SHT_DYNSYM, elf::SHT_SYMTAB].into_iter().find_map(|which| {
        let table = elf.sections.symbols(LE, elf.data, which).ok()?;
        let named = |symbol: &&elf::Sym64<LE>| {
            let defined = symbol.st_shndx(LE) != elf::SHN_UNDEF;
            let variable = symbol.st_type() == elf::STT_OBJECT && defined;
            variable && table.symbol_name(LE, *symbol).is_ok_and(|name| name == wanted.as_bytes())
        };
        table.iter().find(named).map(|symbol| symbol.st_value(LE))
    })
}

/// Reads the symbols of functions from one table.
pub(super) fn table(elf: &Elf, which: elf::SectionType) -> Vec<Symbol> {
    let Ok(table) = elf.sections.symbols(LE, elf.data, which) else { return Vec::new() };
    let mut symbols = Vec::new();
    let mut names = Names::of(elf);
    for symbol in table.iter() {
        let (bind, kind) = (symbol.st_bind(), symbol.st_type());
        let section = symbol.st_shndx(LE);
        let function = kind == elf::STT_FUNC || kind == elf::STT_GNU_IFUNC;
        let label = kind == elf::STT_NOTYPE && bind == elf::STB_GLOBAL;
        let special = section.0 >= elf::SHN_LORESERVE && section != elf::SHN_XINDEX;
        if section == elf::SHN_UNDEF || special || !(function || label) {
            continue;
        }
        let name = || table.symbol_name(LE, symbol).ok();
        let Some(name) = names.read(name) else { continue };
        let name = String::from_utf8_lossy(name);
        // Some linkers append versions to names: `memcpy@@GLIBC_2.14`.
        let name = match name.split_once('@') {
            Some((bare, _)) if !bare.is_empty() => bare,
            _ => &name,
        };
        // Linkers label the ends of sections (`_end`, `_etext`).
        let linker = label && name.starts_with('_') && !name.starts_with("__") && name != "_start";
        if name.is_empty() || linker {
            continue;
        }
        symbols.push(Symbol {
            address: symbol.st_value(LE),
            size: symbol.st_size(LE),
            rank: rank(bind, name),
            name: name.into(),
            dynamic: which == elf::SHT_DYNSYM,
            resolver: kind == elf::STT_GNU_IFUNC,
            function,
        });
    }
    symbols
}

/// Ranks a name: global before weak before local, public before internal.
fn rank(bind: elf::SymbolBind, name: &str) -> u8 {
    let scope = match bind {
        elf::STB_GLOBAL => 0,
        elf::STB_WEAK => 1,
        _ => 2,
    };
    let underscores = name.bytes().take_while(|b| *b == b'_').count().min(3) as u8;
    underscores * 3 + scope
}
