//! Runs the proxy's own configuration check on the file before and after the change.

use std::{
    ffi::OsStr,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, bail};

use super::Proxy;

/// Install directories outside a normal user's PATH.
const DIRECTORIES: [&str; 4] = [
    "/usr/sbin",
    "/usr/local/bin",
    "/usr/local/sbin",
    "/opt/haproxy/sbin",
];
/// The oldest version of Envoy that supports docs/envoy.md.
const MIN_ENVOY: (u32, u32) = (1, 34);

/// A proxy binary that checks configurations.
pub struct Checker {
    proxy: Proxy,
    path: PathBuf,
}

struct Verdict {
    accepted: bool,
    warnings: usize,
    text: String,
}

impl Checker {
    /// Finds the named proxy binary, or an installed one.
    pub fn find(proxy: Proxy, named: Option<PathBuf>) -> anyhow::Result<Option<Self>> {
        let program = proxy.program();
        if let Some(path) = named {
            if !path.is_file() {
                bail!("--{program}: {} is not a file", path.display());
            }
            return Ok(Some(Checker { proxy, path }));
        }
        let paths = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&paths)
            .chain(DIRECTORIES.map(PathBuf::from))
            .map(|directory| directory.join(program))
            .find(|path| path.is_file());
        Ok(found.map(|path| Checker { proxy, path }))
    }

    /// Returns a message for the user; an error if the proxy rejects either file.
    pub fn check(&self, file: &Path, before: &[u8], after: &[u8]) -> anyhow::Result<String> {
        if self.proxy == Proxy::Envoy {
            self.is_recent()?;
        }
        let first = self.verdict(file, before)?;
        if !first.accepted {
            bail!(
                "{} rejects {} before any change (skip the check with --no-check):\n{}",
                self.path.display(),
                file.display(),
                first.text
            );
        }
        let second = self.verdict(file, after)?;
        if !second.accepted {
            bail!(
                "{} rejects the changed file; nothing was written:\n{}",
                self.path.display(),
                second.text
            );
        }
        let mut told = format!(
            "Checked: {} {} accepts it.\n",
            self.path.display(),
            self.words().join(" ")
        );
        if second.warnings > first.warnings {
            told.push_str(&format!("New warnings:\n{}", second.text));
        }
        Ok(told)
    }

    fn words(&self) -> &'static [&'static str] {
        match self.proxy {
            Proxy::Haproxy => &["-c"],
            Proxy::Envoy => &["--mode", "validate"],
        }
    }

    fn verdict(&self, file: &Path, bytes: &[u8]) -> anyhow::Result<Verdict> {
        // Envoy chooses the format by file extension.
        let end = file.extension().unwrap_or(OsStr::new("cfg"));
        let mut suffix = OsStr::new(".").to_owned();
        suffix.push(end);
        let what = || format!("a temporary file for {}", self.path.display());
        let mut copy = tempfile::Builder::new()
            .suffix(&suffix)
            .tempfile()
            .with_context(what)?;
        copy.write_all(bytes)
            .and_then(|()| copy.flush())
            .with_context(what)?;
        let (option, quiet): (&str, &[&str]) = match self.proxy {
            Proxy::Haproxy => ("-f", &[]),
            Proxy::Envoy => ("-c", &["--log-level", "warning"]),
        };
        let output = Command::new(&self.path)
            .args(self.words())
            .args(quiet)
            .arg(option)
            .arg(copy.path())
            .output()
            .with_context(|| format!("{} {}", self.path.display(), self.words().join(" ")))?;
        let text = String::from_utf8_lossy(&output.stderr).replace(
            &copy.path().display().to_string(),
            &file.display().to_string(),
        );
        Ok(Verdict {
            accepted: output.status.success(),
            warnings: text.to_ascii_lowercase().matches("[warning]").count(),
            text,
        })
    }

    fn is_recent(&self) -> anyhow::Result<()> {
        let output = Command::new(&self.path)
            .arg("--version")
            .output()
            .with_context(|| format!("{} --version", self.path.display()))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let Some((major, minor)) = version(&text) else {
            return Ok(());
        };
        if (major, minor) < MIN_ENVOY {
            bail!(
                "{} is Envoy {major}.{minor}, which cannot refuse requests on behalf of agents: {}.{} or later is required",
                self.path.display(),
                MIN_ENVOY.0,
                MIN_ENVOY.1
            );
        }
        Ok(())
    }
}

/// Parses "envoy  version: 5f…/1.40.0/Clean/RELEASE/BoringSSL".
fn version(text: &str) -> Option<(u32, u32)> {
    text.split('/').find_map(|part| {
        let mut numbers = part.split('.').map(str::parse);
        match (numbers.next()?, numbers.next()?) {
            (Ok(major), Ok(minor)) => Some((major, minor)),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_envoy_is_read() {
        let text = "\nenvoy  version: 5f33eb2a/1.33.4/Clean/RELEASE/BoringSSL\n\n";
        assert_eq!(version(text), Some((1, 33)));
        assert_eq!(version("envoy"), None);
    }
}
