//! The clip of the players: compressed video that ffmpeg makes once, with temporal noise, so that a frame costs a
//! good part of a CPU as it did on the paper's machine.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Changes when the recipe changes.
const NAME: &str = "qualman-1080p.mkv";
const RECIPE: &str = "-v error -nostdin -y -f lavfi -i \
testsrc2=size=1920x1080:rate=10:duration=4.8,noise=alls=12:allf=t,format=yuv420p \
-threads 1 -c:v mpeg2video -g 12 -bf 2 -b_strategy 0 -sc_threshold 1000000000 -q:v 3";

/// The clip in the cache; makes it if it is missing.
pub(crate) fn ensure(cache: &Path) -> Result<PathBuf> {
    let clip = cache.join(NAME);
    if clip.exists() {
        return Ok(clip);
    }
    std::fs::create_dir_all(cache)
        .with_context(|| format!("cannot create {}; name another folder with --cache", cache.display()))?;
    // Renamed when complete, so a file with the final name is whole.
    let part = cache.join(format!("{}-{NAME}", std::process::id()));
    let mut command = Command::new("ffmpeg");
    command.args(RECIPE.split(' ')).arg(&part);
    let output = command.output().context("cannot start ffmpeg; try: apt-get install ffmpeg")?;
    ensure!(output.status.success(), "ffmpeg: {}", String::from_utf8_lossy(&output.stderr).trim());
    std::fs::rename(&part, &clip).with_context(|| format!("cannot write {}", clip.display()))?;
    Ok(clip)
}
