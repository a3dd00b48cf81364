// SPDX-License-Identifier: GPL-2.0-only
//! The identity of a VM: its name and UUID, and its manager.
//!
//! No manager is called. Names come from the command line (`-name guest=X`, `--id X`), UUIDs from `-uuid` or SMBIOS
//! there. A manager is recognised by its traces: libvirt by the scope it makes (`machine-qemu\x2d1\x2dweb.scope`) or
//! the VM's file in /run/libvirt/qemu, Proxmox by `/etc/pve/qemu-server/<id>.conf`, which also has the name that people
//! gave, KubeVirt by the pod's cgroup, with libvirt's domain `<namespace>_<name>` inside, OpenStack by the names that
//! Nova gives (`instance-%08x`).

use corun_model::harmless;
use corun_system::procfs;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The manager of a VM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Manager {
    /// None that could be recognised.
    #[default]
    None,
    /// libvirt.
    Libvirt,
    /// OpenStack, through libvirt.
    Openstack,
    /// Proxmox VE.
    Proxmox,
    /// KubeVirt.
    Kubevirt,
}

impl Manager {
    /// Its name as shown.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Libvirt => "libvirt",
            Self::Openstack => "openstack",
            Self::Proxmox => "proxmox",
            Self::Kubevirt => "kubevirt",
        }
    }
}

/// The identity of a VM.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Identity {
    /// Its name; `pid-<number>` if it has none.
    pub name: String,
    /// Its UUID, if it says.
    pub uuid: Option<String>,
    /// Its manager.
    pub manager: Manager,
    /// What the manager calls it, if that is something else: Proxmox' number, KubeVirt's
    /// `namespace/name`.
    pub id: Option<String>,
}

impl Identity {
    /// Is this one of the names it goes by: name, UUID, the manager's?
    pub fn is_called(&self, name: &str) -> bool {
        let is = |known: &Option<String>| known.as_deref() == Some(name);
        self.name == name || is(&self.uuid) || is(&self.id)
    }
}

/// The VM with this process, command line and cgroup.
pub(crate) fn of(root: &Path, tgid: u32, words: &[String], cgroup: Option<&str>) -> Identity {
    let cgroup = cgroup.unwrap_or_default();
    let mut identity = Identity {
        name: name(words).unwrap_or_else(|| format!("pid-{tgid}")),
        uuid: uuid(words),
        ..Identity::default()
    };
    if cgroup.contains("kubepods") {
        identity.manager = Manager::Kubevirt;
        identity.id = identity
            .name
            .split_once('_')
            .map(|(space, name)| format!("{space}/{name}"));
    } else if let Some((number, given)) = proxmox(root, words) {
        identity.manager = Manager::Proxmox;
        identity.id = Some(number);
        identity.name = given.unwrap_or(identity.name);
    } else if cgroup.contains("/machine-qemu") || libvirt_file(root, &identity.name) {
        identity.manager = match is_nova(&identity.name) {
            true => Manager::Openstack,
            false => Manager::Libvirt,
        };
    }
    identity.name = presentable(&identity.name);
    identity.id = identity.id.as_deref().map(presentable);
    identity
}

/// The longest name that is shown, characters: longer than any manager's; libvirt's are file names (assumed).
pub(crate) const LONGEST: usize = 512;

/// A name as it may be written to logs, terminals and metrics: the user who starts a VM chooses its
/// bytes, and must not be able to write lines of their own, which journald would take for messages
/// of corun with any priority.
pub(crate) fn presentable(name: &str) -> String {
    name.chars().take(LONGEST).map(harmless).collect()
}

/// The value after one of these options.
fn after<'a>(words: &'a [String], options: &[&str]) -> Option<&'a str> {
    let pair = words.windows(2).find_map(|pair| match pair {
        [option, value] if options.contains(&option.as_str()) => Some(value.as_str()),
        _ => None,
    });
    // Firecracker and cloud-hypervisor also take `--id=X`.
    let joined = || {
        words.iter().find_map(|word| {
            let (option, value) = word.split_once('=')?;
            options.contains(&option).then_some(value)
        })
    };
    pair.or_else(joined)
}

/// The VM's name on its VMM's command line: `-name guest=X,…`, `-name X`, `--name X`, `--id X`.
pub(crate) fn name(words: &[String]) -> Option<String> {
    let value = after(words, &["-name", "--name", "--id"])?;
    let parts = parts(value);
    let guest = parts.iter().find_map(|part| part.strip_prefix("guest="));
    let plain = || parts.iter().find(|part| !part.contains('='));
    let name = guest.or_else(|| plain().map(String::as_str))?;
    (!name.is_empty()).then(|| name.to_string())
}

/// The parts of QEMU's options, between commas; one that is doubled belongs to its part.
fn parts(value: &str) -> Vec<String> {
    // No word of a command line has a zero.
    let parts = value.replace(",,", "\0");
    let part = |part: &str| part.replace('\0', ",");
    parts.split(',').map(part).collect()
}

/// `-uuid X`, or `-smbios type=1,uuid=X` as on Proxmox.
fn uuid(words: &[String]) -> Option<String> {
    let smbios = || {
        let parts = parts(after(words, &["-smbios"])?);
        let uuid = parts.iter().find_map(|part| part.strip_prefix("uuid="));
        uuid.map(str::to_string)
    };
    let plain = after(words, &["-uuid"]).map(str::to_string);
    let text = plain.or_else(smbios)?;
    let digits = text.chars().filter(char::is_ascii_hexdigit).count();
    (digits == 32 && text.len() == 36).then(|| text.to_ascii_lowercase())
}

/// Proxmox' number of the VM, and the name in its configuration.
fn proxmox(root: &Path, words: &[String]) -> Option<(String, Option<String>)> {
    let number = after(words, &["-id"])?;
    number.parse::<u32>().ok()?;
    let file = root.join(format!("etc/pve/qemu-server/{number}.conf"));
    let text = std::fs::read_to_string(file).ok()?;
    // Sections after the first are snapshots.
    let present = text.lines().take_while(|line| !line.starts_with('['));
    let given = present
        .filter_map(|line| line.strip_prefix("name:"))
        .map(|name| name.trim().to_string())
        .next();
    Some((number.to_string(), given))
}

/// Does libvirt keep the state of a domain with this name?
fn libvirt_file(root: &Path, name: &str) -> bool {
    let plain = !name.contains('/') && name != "..";
    plain && procfs::line(&root.join(format!("run/libvirt/qemu/{name}.xml"))).is_some()
}

fn is_nova(name: &str) -> bool {
    let number = name.strip_prefix("instance-");
    number.is_some_and(|hex| hex.len() == 8 && hex.chars().all(|c| c.is_ascii_hexdigit()))
}
