//! Profile, layout, copies, proof.

use std::collections::BTreeSet;
use std::time::Instant;

use refit_probe::files::Files;
use refit_probe::finder;
use refit_probe::modules;
use refit_probe::spec::Spec;
use refit_splice::process::Program;
use refit_splice::remains::{self, Which};
use refit_splice::{Arrangement, Installed, Plan};
use tracing::debug;

use crate::eligible::{has_shadow_stack, has_unwinder};
use crate::error::Error;
use crate::footprint::Footprints;
use crate::interval::Interval;
use crate::layout::{Hot, Order};
use crate::options::Options;
use crate::outcome::{Outcome, Step, Verdict};
use crate::profile;
use crate::prove::{MOST, Proof, calls_of, measure};
use crate::source;

/// Least size in bytes of a file's code that is optimised: less fits into the first cache.
const LEAST: u64 = 64 << 10;
/// Width of an interval that says enough of copies in the old order.
const EXACT: f64 = 0.02;

/// Optimises a program: profiles it, or takes a stored profile, copies what is hot, and keeps the
/// copies if they pay. Each step is told.
///
/// # Errors
/// [`Error`]; the program is as it was then.
pub fn optimize(
    program: &Program,
    options: &Options,
    tell: &mut dyn FnMut(&Step),
) -> Result<Outcome, Error> {
    let began = Instant::now();
    let (mut files, file) = eligible(program, options)?;
    debug!(elapsed = ?began.elapsed(), "analysed");
    let changed = profile::changed(program, &mut files, file)?;
    if !changed.functions.is_empty() {
        tell(&Step::LeftOut(changed.functions.len()));
    }
    let source = if options.from_profile {
        source::restored(&mut files, file, options, tell)?
    } else {
        source::counted(program, (&mut files, file, &changed), options, tell)?
    };
    let (progress, stay) = match &options.progress {
        Some(spec) => (Some(spec.clone()), BTreeSet::new()),
        None if options.rehearse || options.unproved => (None, BTreeSet::new()),
        None => {
            let id = source.progress.ok_or(Error::NoProgress)?;
            let (name, spec) = calls_of(&mut files, file, id)?;
            tell(&Step::Progress(name));
            (Some(spec), BTreeSet::from([id]))
        }
    };
    let name = files.mapped(file).name();
    let (module, bias) = files.open(file)?;
    let mut hot = Hot::new(module, bias, (&source.profile, &source.targets), &stay);
    // A stored profile may have them.
    hot.leave_out(&changed.functions);
    if let Some(pattern) = &options.functions {
        hot.restrict(&module.find(pattern).into_iter().collect());
    }
    if hot.is_empty() {
        return Err(Error::Idle { file: name });
    }
    let (functions, blocks) = hot.len();
    debug!(elapsed = ?began.elapsed(), functions, blocks, "chosen");
    let new = hot.new_order();
    tell(&Step::LaidOut(functions, blocks, hot.figures_before(), hot.figures_after(&new)));
    debug!(elapsed = ?began.elapsed(), "ordered");
    let footprints = options.footprints.then(|| Footprints::new(module, &hot, &new));
    let mut changing = Changing { program, files, options };
    let outcome = match progress.filter(|_| !options.unproved) {
        _ if options.rehearse => changing.ends(Verdict::Rehearsed, None, None),
        Some(progress) => changing.prove(&hot, &new, &progress, tell)?,
        None => {
            let installed = changing.install(hot.arrangement(&new))?;
            let stored = options.from_profile;
            let verdict = if stored { Verdict::FromProfile } else { Verdict::Unproved };
            changing.ends(verdict, None, Some(installed))
        }
    };
    Ok(Outcome { footprints, ..outcome })
}

/// Analyses the file that is optimised, and returns its index, if its code can run in copies.
fn eligible(program: &Program, options: &Options) -> Result<(Files, usize), Error> {
    refuse_copies(program)?;
    if has_shadow_stack(program) {
        return Err(Error::ShadowStack);
    }
    let mut files = Files::new(program)?;
    let file = chosen(program, &files, options)?;
    let name = files.mapped(file).name();
    if has_unwinder(&mut files, file)? {
        return Err(Error::Unwinder { file: name });
    }
    let (module, _) = files.open(file)?;
    let code = module.image().code().iter().map(|code| code.addresses.end - code.addresses.start);
    let bytes = code.sum();
    if bytes < LEAST {
        return Err(Error::Small { file: name, bytes });
    }
    Ok((files, file))
}

/// Refuses a program that has copies, or unwinders that learn of some; those that were left when
/// threads were in them are taken out.
fn refuse_copies(program: &Program) -> Result<(), Error> {
    let found = remains::find(program)?;
    let copies: Vec<_> = found.iter().filter(|one| one.makes_calls()).collect();
    if copies.iter().any(|one| one.entered(program) > 0) {
        return Err(Error::Already);
    }
    if copies.is_empty() {
        return Ok(());
    }
    let removed = remains::take_out(program, Which::Arrangements)?;
    match removed.because {
        Some(because) if removed.finds => Err(Error::Left { because }),
        _ => Ok(()),
    }
}

/// A program that is being changed.
struct Changing<'a> {
    program: &'a Program,
    files: Files,
    options: &'a Options,
}

impl Changing<'_> {
    fn ends(
        &self,
        verdict: Verdict,
        placebo: Option<Interval>,
        installed: Option<Installed>,
    ) -> Outcome {
        Outcome { verdict, stops: self.program.stops(), placebo, installed, footprints: None }
    }

    /// Measures copies in the old order, if that is wanted, and then in the new one, which stay if
    /// they pay.
    fn prove(
        &mut self,
        hot: &Hot,
        new: &Order,
        progress: &Spec,
        tell: &mut dyn FnMut(&Step),
    ) -> Result<Outcome, Error> {
        let mut placebo = None;
        let rounds = self.options.placebo;
        if rounds > 0 {
            let exact = |gain: &Interval| gain.high - gain.low < EXACT;
            let (proof, _) = self.measure(hot.placebo(), progress, rounds, exact)?;
            tell(&Step::Placebo(proof));
            placebo = Some(proof.gain);
            remains::take_out(self.program, Which::Arrangements)?;
        }
        let new = hot.arrangement(new);
        let (proof, installed) = self.measure(new, progress, MOST, Interval::is_sure)?;
        tell(&Step::Measured(proof));
        if proof.gain.low > 0.0 {
            return Ok(self.ends(Verdict::Kept(proof.gain), placebo, Some(installed)));
        }
        remains::take_out(self.program, Which::Arrangements)?;
        Ok(self.ends(Verdict::Undone(proof.gain), placebo, None))
    }

    fn install(&mut self, arrangement: Arrangement) -> Result<Installed, Error> {
        let (mut plan, _) = Plan::arranged(arrangement);
        finder::add(self.program, &mut self.files, &mut plan);
        debug!("planned");
        Ok(Installed::new(self.program, &plan, 0, None)?)
    }

    /// Puts copies in, and measures what they gain. They stay, unless this fails.
    fn measure(
        &mut self,
        arrangement: Arrangement,
        progress: &Spec,
        most: usize,
        enough: impl Fn(&Interval) -> bool,
    ) -> Result<(Proof, Installed), Error> {
        let installed = self.install(arrangement)?;
        let slot = self.options.slot;
        let measured = measure(self.program, &installed, progress, slot, most, enough);
        match measured {
            Ok(proof) => Ok((proof, installed)),
            Err(error) => {
                remains::take_out(self.program, Which::Arrangements)?;
                Err(error)
            }
        }
    }
}

/// Returns the index of the file that is optimised.
fn chosen(program: &Program, files: &Files, options: &Options) -> Result<usize, Error> {
    let Some(part) = &options.file else {
        return files
            .own(program)
            .ok_or_else(|| Error::NoFile { wanted: modules::own_path(program) });
    };
    let has_part =
        |file: &usize| files.mapped(*file).path.to_string_lossy().contains(part.as_str());
    files.all().find(has_part).ok_or_else(|| Error::NoFile { wanted: part.clone() })
}
