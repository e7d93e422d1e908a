//! `arguments`: the distribution of an argument's values, in powers of two.

use super::cells::{PerProcessor, Powers};
use super::options::{Settings, WrapperError};
use crate::argument::Kind;
use crate::description::InterfaceInfo;
use crate::wrapper::{After, Histogram, PreCall, Wrapper};

#[derive(Debug)]
pub(super) struct Arguments {
    interface: &'static InterfaceInfo,
    options: String,
    argument: String,
    /// For each method, the index of the argument and the number of the histogram.
    places: Vec<Option<(usize, usize)>>,
    cells: PerProcessor<Box<[Powers]>>,
}

impl Arguments {
    pub(super) fn new(settings: &Settings<'_>) -> Result<Self, WrapperError> {
        let there = || settings.visible_arguments();
        let Some(argument) = settings.text("argument") else {
            return Err(settings.missing("argument", there()));
        };
        let found = settings.arguments(|a| a.name == argument && (a.kind)() != Kind::Opaque)?;
        let mut histograms = 0;
        let places: Vec<_> = found
            .into_iter()
            .map(|place| {
                place.map(|place| {
                    histograms += 1;
                    (place, histograms - 1)
                })
            })
            .collect();
        if histograms == 0 {
            let what = "no chosen method has such an argument that can be seen";
            return Err(settings.bad("argument", format!("{what}; {}", there())));
        }
        let cells = || (0..histograms).map(|_| Powers::default()).collect();
        Ok(Arguments {
            interface: settings.interface,
            options: settings.given(),
            argument: argument.to_owned(),
            places,
            cells: PerProcessor::new(cells),
        })
    }
}

impl Wrapper for Arguments {
    fn name(&self) -> &str {
        "arguments"
    }

    fn precall(&self, call: &PreCall<'_>) -> After {
        if let Some(Some((place, cell))) = self.places.get(call.method())
            && let Some(value) = call.argument(*place).number()
        {
            self.cells.at(call.processor())[*cell].add(value);
        }
        After::Forward
    }

    fn options(&self) -> String {
        self.options.clone()
    }

    fn histograms(&self) -> Vec<Histogram> {
        let methods = self.interface.methods.iter().zip(&self.places);
        methods
            .filter_map(|(method, place)| {
                let (_, cell) = (*place)?;
                let name = format!("{}.{}", method.name, self.argument);
                let all = self.cells.iter().map(|cells| &cells[cell]);
                Some(Powers::histogram(all, &name, ""))
            })
            .filter(|histogram| !histogram.ranges.is_empty())
            .collect()
    }
}
