//! The clips that the demo decodes. They are made once per machine and kept in a cache.
//!
//! Problem: the demo needs real video without a download, the same bytes in every run, and a decoding cost that
//! loads this machine as designed. Approach: ffmpeg generates and encodes scenes. A short piece is decoded first,
//! on all CPUs at once, and its cost decides the picture size. The name of a clip contains a hash of all its
//! inputs. A clip is written under a temporary name and then renamed, so a file with the final name is complete.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::children::{ChildGuard, Stop};
use crate::progress::Progress;
use crate::scenes::{self, Scene, Size};
use crate::trial;

/// The recipe of one clip.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// Short name.
    pub name: &'static str,
    /// Name in reports.
    pub title: &'static str,
    /// The scenes, each with its number of frames.
    pub scenes: &'static [(Scene, u32)],
    pub groups: Groups,
    /// Share of one CPU, in the mean, that decoding should take at 25 frames a second.
    pub target: f64,
}

/// The encoder's groups of pictures.
#[derive(Clone, Copy, Debug)]
pub struct Groups {
    /// Largest number of pictures from one I frame to the next.
    pub longest: u32,
    /// Most B frames in a row.
    pub b_frames: u32,
    /// If true, groups end at scene cuts and the encoder chooses the B frames; otherwise all groups are equal.
    pub adaptive: bool,
}

impl Groups {
    /// The name of ffmpeg's encoder and its options.
    fn encoder(self) -> String {
        let Groups { longest, b_frames, adaptive } = self;
        let choice = match adaptive {
            true => "-b_strategy 2 -brd_scale 3 -sc_threshold 0",
            false => "-b_strategy 0 -sc_threshold 1000000000",
        };
        format!("mpeg2video -g {longest} -bf {b_frames} {choice} -q:v 3")
    }
}

/// Closed pattern IBBPBBPBBPBB; the more expensive clip.
pub const CLOSED: Recipe = Recipe {
    name: "closed",
    title: "MPEG-2, IBBPBBPBBPBB",
    scenes: &[(Scene::Pan, 36), (Scene::Over, 36), (Scene::Zoom, 36), (Scene::Life, 36)],
    groups: Groups { longest: 12, b_frames: 2, adaptive: false },
    target: 0.29,
};

/// Scene cuts and adaptive B frames; the cheaper clip.
pub const MIXED: Recipe = Recipe {
    name: "mixed",
    title: "MPEG-2, mixed groups of pictures",
    scenes: &[
        (Scene::Over, 29),
        (Scene::Life, 17),
        (Scene::Pan, 23),
        (Scene::Zoom, 31),
        (Scene::Life, 11),
        (Scene::Over, 33),
    ],
    groups: Groups { longest: 40, b_frames: 3, adaptive: true },
    target: 0.145,
};

/// No pattern: short scenes of different lengths, and groups of pictures that the encoder chooses. Used in the
/// grid.
pub const UNPATTERNED: Recipe = Recipe {
    name: "unpatterned",
    title: "MPEG-2, no pattern",
    scenes: &[
        (Scene::Zoom, 5),
        (Scene::Life, 17),
        (Scene::Pan, 9),
        (Scene::Over, 23),
        (Scene::Life, 3),
        (Scene::Zoom, 14),
        (Scene::Over, 29),
        (Scene::Pan, 7),
        (Scene::Life, 37),
    ],
    groups: Groups { longest: 97, b_frames: 2, adaptive: true },
    target: 0.145,
};

impl Recipe {
    pub fn frames(&self) -> u32 {
        self.scenes.iter().map(|s| s.1).sum()
    }

    /// The scenes cut to a third of their frames, for calibration.
    fn shortened(&self) -> Vec<(Scene, u32)> {
        self.scenes.iter().map(|&(scene, frames)| (scene, frames.div_ceil(3))).collect()
    }
}

/// A clip in the cache.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Clip {
    /// Name of the recipe.
    pub name: String,
    /// Name in reports.
    pub title: String,
    pub path: PathBuf,
    pub size: Size,
    /// Frames of one pass through the clip.
    pub frames: u32,
}

/// The folder of the cache: `$QFABRIC_CACHE`, `$XDG_CACHE_HOME/qfabric` or `~/.cache/qfabric`.
pub fn cache_folder() -> Result<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    set("QFABRIC_CACHE")
        .or_else(|| set("XDG_CACHE_HOME").map(|c| c.join("qfabric")))
        .or_else(|| set("HOME").map(|h| h.join(".cache/qfabric")))
        .context("found no folder for the cache; set QFABRIC_CACHE to a writable folder")
}

/// Returns both clips in sizes that fit this machine, and makes the missing ones.
pub fn ensure(cache: &Path, player: &Path, stop: &Stop, progress: &mut dyn Progress) -> Result<[Clip; 2]> {
    std::fs::create_dir_all(cache)
        .with_context(|| format!("cannot create {}; set QFABRIC_CACHE to a writable folder", cache.display()))?;
    let recipes = [&CLOSED, &MIXED];
    let sizes = calibrated(cache, player, recipes, stop, progress)?;
    let jobs: Vec<ClipJob> =
        recipes.iter().zip(sizes).map(|(r, size)| ClipJob::new(cache, r, r.scenes.to_vec(), size)).collect();
    let paths = make_all(&jobs, stop, progress)?;
    let clip = |i: usize| Clip {
        name: recipes[i].name.into(),
        title: recipes[i].title.into(),
        path: paths[i].clone(),
        size: sizes[i],
        frames: recipes[i].frames(),
    };
    Ok([clip(0), clip(1)])
}

/// The clip without a pattern, in the size of the `mixed` clip, because both cost the same.
pub fn unpatterned(cache: &Path, mixed: &Clip, stop: &Stop, progress: &mut dyn Progress) -> Result<Clip> {
    let recipe = &UNPATTERNED;
    let making = ClipJob::new(cache, recipe, recipe.scenes.to_vec(), mixed.size);
    let path = make_all(&[making], stop, progress)?.remove(0);
    Ok(Clip { name: recipe.name.into(), title: recipe.title.into(), path, size: mixed.size, frames: recipe.frames() })
}

/// Largest accepted ratio between the cost of a clip and its design, in both directions. The frame period corrects
/// the rest.
const FITS: f64 = 1.4;

/// The factor by which the cost of a clip must change if decoding took `share` of one CPU at 25 frames a second;
/// `None` if the clip fits.
pub fn cost_correction(clip: &Clip, share: f64) -> Option<f64> {
    let factor = recipe(clip)?.target / share.max(1e-6);
    (!(1.0 / FITS..=FITS).contains(&factor)).then_some(factor)
}

/// The share of one CPU that decoding the clip should take at 25 frames a second.
pub fn designed_share(clip: &Clip) -> f64 {
    recipe(clip).map_or(0.0, |recipe| recipe.target)
}

fn recipe(clip: &Clip) -> Option<&'static Recipe> {
    [&CLOSED, &MIXED, &UNPATTERNED].into_iter().find(|recipe| recipe.name == clip.name)
}

/// The same clip in the size that costs `factor` times as much: a cached clip if one fits, otherwise a new one.
pub fn resized(cache: &Path, clip: &Clip, factor: f64, stop: &Stop, progress: &mut dyn Progress) -> Result<Clip> {
    let recipe = recipe(clip).context("this clip has no recipe")?;
    let making = |size| ClipJob::new(cache, recipe, recipe.scenes.to_vec(), size);
    let wanted = clip.size.scaled(factor);
    let cached = (Size::RANGE.0.0..=Size::RANGE.1.0).map(Size).filter(|&size| making(size).path.exists());
    let distance = |size: &Size| (2.0 * (f64::from(size.0) / f64::from(wanted.0)).ln()).abs();
    let nearest = cached.min_by(|a, b| distance(a).total_cmp(&distance(b))).filter(|size| distance(size) < FITS.ln());
    let size = nearest.unwrap_or(wanted);
    let path = make_all(&[making(size)], stop, progress)?.remove(0);
    Ok(Clip { path, size, ..clip.clone() })
}

/// The sizes at which decoding costs the target of each recipe. Measured once and cached.
fn calibrated(
    cache: &Path,
    player: &Path,
    recipes: [&Recipe; 2],
    stop: &Stop,
    progress: &mut dyn Progress,
) -> Result<[Size; 2]> {
    let jobs: Vec<ClipJob> = recipes.iter().map(|r| ClipJob::new(cache, r, r.shortened(), Size::FULL_HD)).collect();
    let targets = recipes.map(|r| r.target);
    let key = hash(&format!("{targets:?} {} {}", jobs[0].path.display(), jobs[1].path.display()));
    let kept = cache.join(format!("calibration-{key:016x}.json"));
    if let Some(sizes) = std::fs::read(&kept).ok().and_then(|text| serde_json::from_slice(&text).ok()) {
        return Ok(sizes);
    }
    let paths = make_all(&jobs, stop, progress)?;
    let costs = trial::shares_under_load(player, &paths, stop)?;
    let sizes: [Size; 2] = std::array::from_fn(|i| Size::FULL_HD.scaled(targets[i] / costs[i].max(1e-6)));
    write_whole(&kept, &serde_json::to_vec(&sizes)?)?;
    Ok(sizes)
}

/// A clip that is to be made.
struct ClipJob {
    arguments: Vec<String>,
    frames: u32,
    path: PathBuf,
    title: String,
}

impl ClipJob {
    fn new(cache: &Path, recipe: &Recipe, scenes: Vec<(Scene, u32)>, size: Size) -> ClipJob {
        let frames = scenes.iter().map(|s| s.1).sum();
        let mut arguments = vec!["-filter_complex".into(), scenes::graph(&scenes, size)];
        let tail = ["-map", "[v]", "-r", "25", "-threads", "1", "-c:v"];
        arguments.extend(tail.into_iter().chain(recipe.groups.encoder().split(' ')).map(String::from));
        arguments.extend(["-fflags", "+bitexact", "-flags:v", "+bitexact", "-f", "matroska"].map(String::from));
        let key = hash(&arguments.join("\n"));
        let path = cache.join(format!("{}-{size}-{frames}-{key:016x}.mkv", recipe.name));
        ClipJob { arguments, frames, path, title: format!("{} {size}", recipe.title) }
    }

    fn unfinished(&self) -> PathBuf {
        self.path.with_extension(format!("part{}", std::process::id()))
    }

    fn start(&self) -> Result<ChildGuard> {
        let started = Command::new("ffmpeg")
            .args(["-v", "error", "-nostdin", "-y", "-progress", "pipe:1"])
            .args(&self.arguments)
            .arg(self.unfinished())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        match started {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                bail!("the program ffmpeg is not installed; try: apt-get install ffmpeg")
            }
            other => Ok(ChildGuard::new(other.context("cannot start ffmpeg")?)),
        }
    }
}

/// Makes the missing clips, all at once, with one encoder thread each. Returns the paths of all clips.
fn make_all(jobs: &[ClipJob], stop: &Stop, progress: &mut dyn Progress) -> Result<Vec<PathBuf>> {
    let missing: Vec<&ClipJob> = jobs.iter().filter(|job| !job.path.exists()).collect();
    if !missing.is_empty() {
        let titles: Vec<_> = missing.iter().map(|job| job.title.as_str()).collect();
        progress.stage(&format!("making {}", titles.join(" and ")), missing.iter().map(|j| j.frames as u64).sum());
        let made = make_missing(&missing, stop, progress);
        for job in &missing {
            // The file exists only if making the clip failed; otherwise the removal fails, which is harmless.
            std::fs::remove_file(job.unfinished()).ok();
        }
        made?;
    }
    Ok(jobs.iter().map(|job| job.path.clone()).collect())
}

fn make_missing(missing: &[&ClipJob], stop: &Stop, progress: &mut dyn Progress) -> Result<()> {
    let (frames_in, frames) = std::sync::mpsc::channel();
    let mut encoders = Vec::new();
    for (i, job) in missing.iter().enumerate() {
        let mut encoder = job.start()?;
        follow(encoder.child(), i, frames_in.clone());
        encoders.push(encoder);
    }
    drop(frames_in);
    let mut done = vec![0; missing.len()];
    while let Some((i, frame)) = next_report(&frames, stop)? {
        done[i] = frame;
        progress.advance(done.iter().sum());
    }
    for (encoder, job) in encoders.into_iter().zip(missing) {
        encoder.finish("ffmpeg")?;
        let unfinished = job.unfinished();
        ensure!(unfinished.exists(), "ffmpeg ended without creating {}", unfinished.display());
        std::fs::rename(&unfinished, &job.path)
            .with_context(|| format!("cannot move the finished clip to {}", job.path.display()))?;
    }
    Ok(())
}

/// Returns the next `(encoder, frames made)`, or `None` when all encoders have closed their reports.
fn next_report(frames: &std::sync::mpsc::Receiver<(usize, u64)>, stop: &Stop) -> Result<Option<(usize, u64)>> {
    use std::sync::mpsc::RecvTimeoutError::{Disconnected, Timeout};
    for _ in 0..1_200 {
        stop.check()?;
        match frames.recv_timeout(std::time::Duration::from_millis(100)) {
            Ok(report) => return Ok(Some(report)),
            Err(Disconnected) => return Ok(None),
            Err(Timeout) => (),
        }
    }
    bail!("ffmpeg has encoded no frame for two minutes; check free disk space and whether other programs use all CPUs")
}

/// Starts a thread that reads an encoder's `-progress` report until the encoder closes it.
fn follow(encoder: &mut Child, i: usize, frames: std::sync::mpsc::Sender<(usize, u64)>) {
    let Some(report) = encoder.stdout.take() else { return };
    std::thread::spawn(move || {
        for line in BufReader::new(report).lines().map_while(Result::ok) {
            let frame = line.strip_prefix("frame=").and_then(|n| n.trim().parse().ok());
            if frame.is_some_and(|frame| frames.send((i, frame)).is_err()) {
                return;
            }
        }
    });
}

/// Writes a file under a temporary name and renames it, so that the file is either complete or absent. A device, a pipe
/// or a link, such as `/dev/stdout`, is written to: as root, the rename would replace it for all programs.
pub fn write_whole(path: &Path, content: &[u8]) -> Result<()> {
    let failed = || format!("cannot write {}", path.display());
    if std::fs::symlink_metadata(path).is_ok_and(|found| !found.is_file()) {
        return std::fs::write(path, content).with_context(failed);
    }
    let unfinished = path.with_extension(format!("part{}", std::process::id()));
    make_whole(path, &unfinished, || {
        let written = std::fs::File::create(&unfinished).and_then(|mut file| file.write_all(content));
        written.with_context(failed)
    })
}

/// Calls `make`, which makes the file `unfinished`, and renames this file to `path`, so that the file at `path` is
/// either complete or absent. After a failure `unfinished` is removed.
///
/// # Errors
///
/// The error of `make`, or the rename failed.
pub fn make_whole(path: &Path, unfinished: &Path, make: impl FnOnce() -> Result<()>) -> Result<()> {
    let renamed = || std::fs::rename(unfinished, path).with_context(|| format!("cannot write {}", path.display()));
    let made = make().and_then(|()| renamed());
    if made.is_err() {
        // It may not exist; then there is nothing to remove.
        std::fs::remove_file(unfinished).ok();
    }
    made
}

/// FNV-1a, 64 bits: gives the same value on every machine and with every compiler.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |h, byte| (h ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::Silent;

    fn tiny(folder: &Path) -> ClipJob {
        ClipJob::new(folder, &CLOSED, vec![(Scene::Pan, 5), (Scene::Over, 5)], Size(1))
    }

    #[test]
    fn a_file_is_replaced_and_a_link_to_a_device_is_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("rows.json"), folder.path().join("link"));
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        for content in ["old", "new"] {
            write_whole(&file, content.as_bytes()).unwrap();
            write_whole(&link, content.as_bytes()).unwrap();
        }
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "new");
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "a temporary file remains");
    }

    #[test]
    fn a_file_that_could_not_be_made_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (file, part) = (folder.path().join("clip.mkv"), folder.path().join("part.mkv"));
        let made = make_whole(&file, &part, || {
            std::fs::write(&part, "half")?;
            bail!("the encoder failed")
        });
        assert_eq!(made.unwrap_err().to_string(), "the encoder failed");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_hash_equals_the_published_values() {
        assert_eq!((hash(""), hash("a")), (0xcbf2_9ce4_8422_2325, 0xaf63_dc4c_8601_ec8c));
    }

    fn mixed(size: Size) -> Clip {
        Clip {
            name: MIXED.name.into(),
            title: MIXED.title.into(),
            path: "/cache/clips/mixed.mkv".into(),
            size,
            frames: 144,
        }
    }

    #[test]
    fn a_clip_fits_at_1_25_times_its_cost_but_not_at_twice_its_cost() {
        let clip = mixed(Size(20));
        assert_eq!(cost_correction(&clip, MIXED.target * 1.25), None);
        assert_eq!(cost_correction(&clip, 2.0 * MIXED.target), Some(0.5));
    }

    #[test]
    fn a_cached_clip_of_similar_size_is_used() {
        let folder = tempfile::tempdir().unwrap();
        let near = ClipJob::new(folder.path(), &MIXED, MIXED.scenes.to_vec(), Size(15)).path;
        std::fs::write(&near, "a clip").unwrap();
        let clip = resized(folder.path(), &mixed(Size(20)), 0.5, &Stop::never(), &mut Silent).unwrap();
        assert_eq!((clip.size, clip.path), (Size(15), near), "size 14 would fit exactly");
    }

    #[test]
    fn the_name_of_a_clip_depends_on_its_recipe() {
        let folder = Path::new("/cache");
        let name = |scenes: &[(Scene, u32)], size| ClipJob::new(folder, &CLOSED, scenes.to_vec(), size).path;
        let one = name(&[(Scene::Pan, 5)], Size(5));
        assert_ne!(one, name(&[(Scene::Life, 5)], Size(5)));
        assert_ne!(one, name(&[(Scene::Pan, 5)], Size(6)));
        assert_eq!(one, name(&[(Scene::Pan, 5)], Size(5)));
    }

    #[test]
    fn a_clip_is_made_once_and_always_has_the_same_bytes() {
        let bytes: Vec<Vec<u8>> = (0..2)
            .map(|_| {
                let folder = tempfile::tempdir().unwrap();
                let paths = make_all(&[tiny(folder.path())], &Stop::never(), &mut Silent).unwrap();
                let made = std::fs::metadata(&paths[0]).unwrap().modified().unwrap();
                make_all(&[tiny(folder.path())], &Stop::never(), &mut Silent).unwrap();
                assert_eq!(std::fs::metadata(&paths[0]).unwrap().modified().unwrap(), made);
                assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "a temporary file remains");
                std::fs::read(&paths[0]).unwrap()
            })
            .collect();
        assert!(bytes[0] == bytes[1] && bytes[0].len() > 1_000);
    }

    #[test]
    fn a_recipe_that_ffmpeg_refuses_leaves_no_file_and_reports_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let mut broken = tiny(folder.path());
        broken.arguments[1] = "nonsense[v]".into();
        let refusal = make_all(&[broken], &Stop::never(), &mut Silent).unwrap_err().to_string();
        assert!(refusal.contains("nonsense"), "{refusal}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
