//! The types of the addresses that maps keep: those that are assigned to them.
//!
//! A type belongs to the file of the place where it is assigned. At places in other files, and in
//! probes of other scripts, the type of the same name is meant.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use refit_analysis::types::Types;

use crate::action::Do;
use crate::argument::Maps;
use crate::error::Error;
use crate::files::Files;
use crate::forms::{Facts, Form, KeptType, KeptTypes};
use crate::places::CodePlace;
use crate::spec::Spec;

/// The types of files, once they are needed, by the indices of the files.
pub(crate) type TypesOfFiles = BTreeMap<usize, OnceCell<Option<Types>>>;

/// Finds the types of the maps in which actions at these places keep values.
///
/// # Errors
/// [`Error::Map`]: a map keeps addresses of different types.
pub(crate) fn find(
    places: &[(&Spec, usize, CodePlace)],
    files: &Files,
    types: &mut TypesOfFiles,
    maps: &Maps,
) -> Result<KeptTypes, Error> {
    let mut known = KeptTypes::default();
    // A map may be assigned what another one keeps.
    loop {
        let before = known.len();
        for (spec, file, found) in places {
            types.entry(*file).or_default();
            add(spec, (*file, found), files, types, maps, &mut known)?;
        }
        if known.len() == before {
            return Ok(known);
        }
    }
}

fn add(
    spec: &Spec,
    (file, found): (usize, &CodePlace),
    files: &Files,
    types: &TypesOfFiles,
    maps: &Maps,
    known: &mut KeptTypes,
) -> Result<(), Error> {
    for statement in &spec.actions {
        let (Do::Keep { of: Some(of), .. }, Some(map)) = (&statement.what, &statement.map) else {
            continue;
        };
        let (Some((module, bias)), Some(types)) = (files.opened(file), types.get(&file)) else {
            continue;
        };
        let name = files.mapped(file).name();
        let facts = Facts {
            maps,
            kept_types: known,
            address: found.address.wrapping_add(bias),
            in_file: found.address,
            file,
            module: &name,
            tracepoint: found.tracepoint.and_then(|at| module.image().tracepoints().get(at)),
            types: &|| types.get_or_init(|| Types::of(module.image())).as_ref(),
            declared: &spec.declared,
        };
        // Whatever is wrong with it, the place is refused because of it.
        let Ok(Some(of)) = of.type_of(&facts) else { continue };
        if !matches!(facts.form(&of), Ok(Form::Pointer(_))) {
            continue;
        }
        let named = facts.name_of(&of);
        match known.get(map) {
            None => {
                let declared = Arc::clone(&spec.declared);
                known.insert(map.clone(), KeptType { of, named, file, module: name, declared });
            }
            Some(KeptType { named: Some(other), .. }) => {
                if let Some(one) = named.filter(|one| one != other) {
                    let why = format!("it keeps `{other}` in one place, and `{one}` in another");
                    return Err(Error::Map { name: map.clone(), why });
                }
            }
            Some(_) => {}
        }
    }
    Ok(())
}
