//! Values, versions, proof.

use std::collections::BTreeSet;
use std::time::Duration;

use refit_analysis::functions::Sources;
use refit_analysis::{FunctionId, Module, registers};
use refit_optimize::eligible::{has_shadow_stack, has_unwinder};
use refit_optimize::interval::Interval;
use refit_optimize::prove::{MOST, NoProof, Proof, calls_of, measure};
use refit_optimize::{Verdict, profile, steady};
use refit_probe::files::{Files, Spot};
use refit_probe::sites::Place;
use refit_probe::spec::Spec;
use refit_probe::{finder, watch};
use refit_splice::process::{Program, Refusal, Stops};
use refit_splice::{Installed, Plan, Versions, Why, remains};
use tracing::debug;

use crate::calls::{Callee, constant_calls};
use crate::code::{Code, entry_site};
use crate::constants::Loaded;
use crate::error::NoVersion;
use crate::graph::Limits;
use crate::target::Target;
use crate::values::Values;
use crate::version::{ArgumentValue, Figures, version};

/// The function that is specialized, and the way.
#[derive(Clone, Debug)]
pub struct Options {
    /// The function and its argument.
    pub target: Target,
    /// Time for which the values of the argument are counted.
    pub profile: Duration,
    /// Calls of this function are the program's progress; found if there is none.
    pub progress: Option<Spec>,
    /// Time of a slot in which progress is measured.
    pub slot: Duration,
    /// Whether nothing is changed but for the counters of values.
    pub rehearse: bool,
    /// Whether the versions are kept without a proof.
    pub unproved: bool,
    /// Limits of the growth of a version.
    pub limits: Limits,
}

impl Options {
    /// Returns the usual way for a function and its argument.
    pub fn new(target: Target) -> Self {
        Self {
            target,
            profile: Duration::from_secs(3),
            progress: None,
            slot: Duration::from_millis(25),
            rehearse: false,
            unproved: false,
            limits: Limits::default(),
        }
    }
}

/// A step that has been made, for people.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// The argument had these values.
    Values(Values),
    /// The version for a value was made of a function of so many instructions.
    Made(u64, usize, Figures),
    /// No version could be made for a value.
    NotMade(u64, NoVersion),
    /// So many calls lead to a version without a comparison: their argument is a constant.
    Calls(usize),
    /// This function's calls are the progress.
    Progress(String),
    /// The versions were measured.
    Measured(Proof),
}

/// The result.
#[derive(Debug)]
pub struct Outcome {
    /// The end of it.
    pub verdict: Verdict,
    /// The stops of the program, with those of the value profile.
    pub stops: Stops,
    /// The values that have a version, with what was done for each.
    pub versions: Vec<(u64, Figures)>,
    /// The versions, if they stay.
    pub installed: Option<Installed>,
}

/// Why a function was not specialized. The program is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The function was not called.
    #[error("{function} was not called in that time")]
    Idle {
        /// The function.
        function: String,
    },
    /// No value is hot.
    #[error("no value is frequent enough: {}", told(.values))]
    NotHot {
        /// The values that were counted.
        values: Values,
    },
    /// No version can be made.
    #[error("{function} has no version: {why}")]
    NoVersion {
        /// The function.
        function: String,
        /// The reason.
        why: NoVersion,
    },
    /// The function has versions already.
    #[error("{function} has versions already; undo that first")]
    Already {
        /// The function.
        function: String,
    },
    /// Return addresses cannot be changed.
    #[error("it runs with shadow stacks, whose return addresses cannot be taken back")]
    ShadowStack,
    /// The file has the unwinder.
    #[error("{file} has the unwinder of exceptions in itself, whose code must not run in copies")]
    Unwinder {
        /// The file.
        file: String,
    },
    /// No function's calls are a measure of progress.
    #[error("no function was called evenly enough to measure progress by; name one")]
    NoProgress,
    /// Nothing could be measured.
    #[error(transparent)]
    NoProof(#[from] NoProof),
    /// The program cannot be watched, or has no such function.
    #[error(transparent)]
    Watch(#[from] watch::Error),
}

/// Names the most frequent values.
fn told(values: &Values) -> String {
    let share = |count: u64| count as f64 * 100.0 / values.calls.max(1) as f64;
    let all = values.counts.iter().take(4);
    let all: Vec<_> = all
        .map(|&(value, count)| format!("{value:#x} in {:.0} % of calls", share(count)))
        .collect();
    all.join(", ")
}

impl From<Why> for Error {
    fn from(why: Why) -> Self {
        Self::Watch(why.into())
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Self::Watch(refusal.into())
    }
}

/// Specializes a function of a program for the hot values of an argument, and keeps that if it
/// pays. Each step is told.
///
/// # Errors
/// [`Error`]; the program is as it was then.
pub fn specialize(
    program: &Program,
    options: &Options,
    tell: &mut dyn FnMut(&Step),
) -> Result<Outcome, Error> {
    if has_shadow_stack(program) {
        return Err(Error::ShadowStack);
    }
    let mut files = Files::new(program)?;
    let spot = files.find(&options.target.function)?;
    let mut work = Work { program, files, spot, options };
    work.refuse()?;
    let values = work.values(tell)?;
    let (versions, made) = work.versions(&values, tell)?;
    if options.rehearse {
        return Ok(work.ends(Verdict::Rehearsed, made, None));
    }
    if options.unproved {
        let installed = work.install(versions)?;
        return Ok(work.ends(Verdict::Unproved, made, Some(installed)));
    }
    let progress = match &options.progress {
        Some(spec) => spec.clone(),
        None => work.found_progress(tell)?,
    };
    let installed = work.install(versions)?;
    let sure = Interval::is_sure;
    match measure::<Error>(program, &installed, &progress, options.slot, MOST, sure) {
        Ok(proof) => {
            tell(&Step::Measured(proof));
            work.decide(proof.gain, made, installed)
        }
        Err(error) => {
            installed.take_out(program)?;
            Err(error)
        }
    }
}

/// A function that is being specialized.
struct Work<'a> {
    program: &'a Program,
    files: Files,
    spot: Spot,
    options: &'a Options,
}

impl Work<'_> {
    fn ends(
        &self,
        verdict: Verdict,
        versions: Vec<(u64, Figures)>,
        installed: Option<Installed>,
    ) -> Outcome {
        Outcome { verdict, stops: self.program.stops(), versions, installed }
    }

    /// Keeps versions that pay.
    fn decide(
        &self,
        gain: Interval,
        made: Vec<(u64, Figures)>,
        installed: Installed,
    ) -> Result<Outcome, Error> {
        if gain.low > 0.0 {
            return Ok(self.ends(Verdict::Kept(gain), made, Some(installed)));
        }
        installed.take_out(self.program)?;
        Ok(self.ends(Verdict::Undone(gain), made, None))
    }

    fn name(&self) -> String {
        self.files.name(self.spot)
    }

    /// Refuses functions that have versions already, and files with the unwinder.
    fn refuse(&mut self) -> Result<(), Error> {
        let name = self.name();
        if has_unwinder(&mut self.files, self.spot.file())? {
            return Err(Error::Unwinder { file: self.files.mapped(self.spot.file()).name() });
        }
        let (module, bias) = self.files.open(self.spot.file())?;
        let function = module.function(self.spot.function());
        let own = function.entry.wrapping_add(bias)..function.entry.wrapping_add(bias) + 16;
        let found = remains::find(self.program)?;
        let entered = found.iter().filter(|one| one.has_versions());
        let mut entries = entered.flat_map(|one| one.entries(self.program));
        match entries.any(|entry| own.contains(&entry)) {
            true => Err(Error::Already { function: name }),
            false => Ok(()),
        }
    }

    /// Returns the number of the register that has the argument when the function is called.
    fn register(&self) -> u8 {
        registers::ARGUMENTS[usize::from(self.options.target.argument) % registers::ARGUMENTS.len()]
    }

    /// Returns the values that get versions.
    fn values(&self, tell: &mut dyn FnMut(&Step)) -> Result<Vec<u64>, Error> {
        let Options { target, profile, .. } = self.options;
        let register = self.register();
        if let Some(value) = target.value {
            return Ok(vec![value]);
        }
        let (program, files) = (self.program, &self.files);
        let values = Values::watch(program, files, self.spot, register, *profile)?;
        tell(&Step::Values(values.clone()));
        if values.calls == 0 {
            return Err(Error::Idle { function: self.name() });
        }
        let hot = values.hot();
        if hot.is_empty() { Err(Error::NotHot { values }) } else { Ok(hot) }
    }

    /// Makes the versions for these values, as far as there are some.
    fn versions(
        &mut self,
        values: &[u64],
        tell: &mut dyn FnMut(&Step),
    ) -> Result<(Versions, Vec<(u64, Figures)>), Error> {
        let name = self.name();
        let failed = |why| Error::NoVersion { function: name.clone(), why };
        let (file, register) = (self.spot.file(), self.register());
        let (module, bias) = self.files.open(file)?;
        let place = Place::new(module, self.spot.function(), bias);
        let code = Code::new(&place, module, bias).map_err(failed)?;
        let constants = Loaded::new(self.program, module.image(), bias)?;
        let (mut made, mut versions, mut last) = (Vec::new(), Vec::new(), NoVersion::Nothing);
        for &value in values {
            let known = ArgumentValue { register, value, tested: values };
            match version(&code, known, &constants, self.options.limits) {
                Ok((version, figures)) => {
                    tell(&Step::Made(value, code.instructions(), figures));
                    versions.push(version);
                    made.push((value, figures));
                }
                Err(why) => {
                    tell(&Step::NotMade(value, why.clone()));
                    last = why;
                }
            }
        }
        if versions.is_empty() {
            return Err(failed(last));
        }
        let site = entry_site(&place, module).map_err(failed)?;
        let body = place.body().cloned().ok_or_else(|| failed(NoVersion::Uncopied))?;
        let entry = module.function(self.spot.function()).entry;
        let callee = Callee { entry, site: site.address, register };
        let values: Vec<u64> = versions.iter().map(|one| one.value).collect();
        let calls = constant_calls(self.program, (module, bias), &callee, &values);
        tell(&Step::Calls(calls.len()));
        debug!(function = name, ?made, calls = calls.len(), "versions");
        Ok((Versions { site, body, versions, calls }, made))
    }

    fn install(&mut self, versions: Versions) -> Result<Installed, Error> {
        let (mut plan, refused) = Plan::versions(vec![versions]);
        if let Some((_, why)) = refused.into_iter().next() {
            return Err(why.into());
        }
        finder::add(self.program, &mut self.files, &mut plan);
        Ok(Installed::new(self.program, &plan, 0, None)?)
    }

    /// Finds a function by whose calls progress is measured, in the program's own file.
    fn found_progress(&mut self, tell: &mut dyn FnMut(&Step)) -> Result<Spec, Error> {
        let file = self.files.own(self.program).unwrap_or_else(|| self.spot.file());
        self.files.open(file)?;
        let time = self.options.profile / 2;
        let changed = profile::changed(self.program, &mut self.files, file)?;
        let mut called = profile::called(self.program, &mut self.files, file, &changed, time)?;
        let (module, _) = self.files.open(file)?;
        let mut left: BTreeSet<FunctionId> = stubs(module);
        if file == self.spot.file() {
            left.insert(self.spot.function());
        }
        called.rates.retain(|id, _| !left.contains(id));
        let id = steady(&called, self.options.slot, |_| 0).ok_or(Error::NoProgress)?;
        let (name, spec) = calls_of(&mut self.files, file, id)?;
        tell(&Step::Progress(name));
        Ok(spec)
    }
}

/// Returns the stubs by which functions of other files are called.
fn stubs(module: &Module) -> BTreeSet<FunctionId> {
    let all = (0..module.functions().len() as u32).map(FunctionId);
    all.filter(|&id| module.function(id).sources.contains(Sources::STUB)).collect()
}
