//! One run: everybody is started, scheduled, begun together, and asked afterwards.

use anyhow::Result;
use qfabric_linux::clock;
use qfabric_types::{Instant, Nanos, ServerCounts, ThreadId, Window};

use crate::actor::Actor;
use crate::regime::{Claim, Competitor, Regime, elevate};
use crate::role::{Player, Role, Server, Stream};
use crate::row::{Host, Row, Task};
use crate::work::Work;
use qfabric_stream::sleep_until;

/// What a job's own system calls, and the interrupts that hit it, take of its budget. The computation is the rest.
const OVERHEAD: Nanos = Nanos::new(250_000);
/// From the moment everybody is scheduled to the common start.
const RUN_UP: Nanos = Nanos::from_millis(100);

/// A task that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subject {
    /// T.
    pub period: Nanos,
    /// C: the job's computation and what surrounds it.
    pub budget: Nanos,
    /// First release after the start.
    pub phase: Nanos,
    /// x/y.
    pub window: Window,
    /// Whether it takes frames from a server.
    pub frames: bool,
    /// Whether it gives late work up.
    pub abandon: bool,
    /// Where its server's periods begin.
    pub alignment: Alignment,
}

/// Where the periods of a server begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Alignment {
    /// With the common start: those of all tasks lie on one grid, wherever their jobs begin.
    Grid,
    /// With the task's own first job.
    Own,
    /// With each demand that comes after a deadline (CBS): nobody is told when jobs begin.
    Demand,
}

/// Who is on the stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scene {
    /// In words.
    pub setting: String,
    /// Those who are measured.
    pub subjects: Vec<Subject>,
    /// Ordinary tasks that never sleep.
    pub hogs: usize,
    /// Ordinary tasks that start processes as fast as they can.
    pub forks: usize,
    /// A task under the competitor's scheduler that never ends a job: its (budget, period).
    pub endless_loop: Option<(Nanos, Nanos)>,
}

impl Subject {
    fn role(&self, span: Nanos) -> Role {
        Role::Player(Player {
            period: self.period.get(),
            phase: self.phase.get(),
            cost: self.budget.saturating_sub(OVERHEAD).get(),
            span: span.get(),
            abandon: self.abandon,
            frames: self.frames,
        })
    }

    fn claim(&self, start: Instant) -> Claim {
        let Subject { period, budget, window, .. } = *self;
        let first = match self.alignment {
            Alignment::Grid => Some(start),
            Alignment::Own => Some(start + self.phase),
            Alignment::Demand => None,
        };
        Claim { period, budget, window, first, work_conserving: false }
    }
}

/// One competitor at one setting. A set that it refuses is a row that says so.
pub fn run(experiment: &str, scene: &Scene, competitor: Competitor, span: Nanos, work: Work) -> Result<Row> {
    elevate(ThreadId(0), 60)?;
    let mut cast = Cast::assemble(scene, span, work)?;
    let mut regime = Regime::begin(competitor)?;
    let start = clock::now() + RUN_UP;
    let refused = cast.schedule(scene, &mut regime, start).err().map(|e| format!("{e:#}"));
    let (mut tasks, mut counted, mut others) = Default::default();
    if refused.is_none() {
        (tasks, counted, others) = cast.perform(scene, &regime, start, span)?;
    }
    let (setting, experiment) = (scene.setting.clone(), experiment.to_owned());
    Ok(Row { experiment, competitor, setting, x: 0.0, round: 0, refused, tasks, counted, others, host: Host::this() })
}

/// Everybody, ready.
struct Cast {
    subjects: Vec<Actor>,
    hogs: Vec<Actor>,
    endless: Option<Actor>,
    server: Option<Actor>,
}

impl Cast {
    fn assemble(scene: &Scene, span: Nanos, work: Work) -> Result<Cast> {
        let spawn = |role: Role| Actor::spawn(&role, work);
        let subjects = scene.subjects.iter().map(|s| spawn(s.role(span))).collect::<Result<Vec<_>>>()?;
        let storm = std::iter::repeat_n(Role::Forks, scene.forks);
        let hogs = std::iter::repeat_n(Role::Hog, scene.hogs).chain(storm).map(spawn).collect::<Result<_>>()?;
        let endless = scene.endless_loop.map(|_| spawn(Role::Hog)).transpose()?;
        let streams = streams(scene, &subjects);
        let server =
            (!streams.is_empty()).then(|| spawn(Role::Server(Server { streams, span: span.get() }))).transpose()?;
        Ok(Cast { subjects, hogs, endless, server })
    }

    fn schedule(&mut self, scene: &Scene, regime: &mut Regime, start: Instant) -> Result<()> {
        if let Some(server) = &self.server {
            elevate(server.thread(), 50)?;
        }
        for (actor, subject) in self.subjects.iter().zip(&scene.subjects) {
            regime.place(actor.thread(), subject.claim(start))?;
        }
        if let (Some(actor), Some((budget, period))) = (&self.endless, scene.endless_loop) {
            let claim = Claim { period, budget, window: Window::NONE, first: Some(start), work_conserving: true };
            regime.place(actor.thread(), claim)?;
        }
        Ok(())
    }

    /// Runs it; what the tasks saw, what the scheduler counted, and what ordinary tasks got, in CPUs.
    fn perform(mut self, scene: &Scene, regime: &Regime, start: Instant, span: Nanos) -> Result<Seen> {
        let everybody = self.subjects.iter_mut().chain(&mut self.hogs).chain(&mut self.endless).chain(&mut self.server);
        for actor in everybody {
            actor.begin(start)?;
        }
        sleep_until(start + span);
        let counted = regime.counts()?.into_iter().take(scene.subjects.len()).collect();
        let others = self.hogs.iter().fold(0.0, |sum, hog| sum + hog.cpu().as_secs_f64()) / span.as_secs_f64();
        drop((self.hogs, self.endless)); // who is late still ends its last job, undisturbed
        let traces = self.subjects.into_iter().map(Actor::finish).collect::<Result<Vec<_>>>()?;
        let tasks = traces.iter().zip(&scene.subjects).map(|(trace, subject)| Task::of(trace, subject.window));
        Ok((tasks.collect(), counted, others))
    }
}

type Seen = (Vec<Task>, Vec<ServerCounts>, f64);

fn streams(scene: &Scene, subjects: &[Actor]) -> Vec<Stream> {
    let listening = subjects.iter().zip(&scene.subjects).filter_map(|(actor, subject)| Some((actor.address?, subject)));
    listening.map(|(to, s)| Stream { to, period: s.period.get(), phase: s.phase.get() }).collect()
}
