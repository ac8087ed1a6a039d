package role

import (
	"cmp"
	"slices"
	"strings"

	"clusterctl/provision/host"
	"clusterctl/provision/step"
)

// service holds the properties in which units differ.
type service struct {
	name               string
	description        string
	startAfter         string   // the unit to start after
	exec               []string // program and arguments
	reads              []string // files whose change restarts the unit, besides the unit file and the program
	hasWatchdog        bool     // it notifies systemd's watchdog
	options            []string // lines of [Service]
	canStartInParallel bool     // may start in parallel with neighbouring units
	// counts as started once it runs, because its readiness depends on units that start later
	isReadyOnStart bool
	restartDelay   string // restart delay; defaultRestartDelay if empty
	health         string // URL of the readiness check
	credentials    host.Client
	runsContainers bool // its child processes are containers, which inherit its settings
	needsProxy     bool // connects to hosts outside the cluster; options must include those of builder.outside
}

// timerSlack lets the kernel delay a daemon's wake-ups, which reduces its CPU use (daemons/run/slack.go).
const timerSlack = "TimerSlackNSec=4ms"

// defaultRestartDelay is the delay in seconds before systemd restarts a daemon.
const defaultRestartDelay = "1"

// confinement restricts daemons that only communicate over the network.
var confinement = []string{
	"NoNewPrivileges=yes", "ProtectSystem=full", "ProtectHome=yes", "PrivateTmp=yes", "ProtectControlGroups=yes",
	"ProtectKernelModules=yes", "ProtectKernelTunables=yes", "RestrictSUIDSGID=yes", "RestrictRealtime=yes",
	"LockPersonality=yes",
	"RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX", "SystemCallArchitectures=native",
}

// withAddressFamilies returns options that also allow other socket families.
func withAddressFamilies(options []string, families string) []string {
	options = slices.Clone(options)
	for i, o := range options {
		if strings.HasPrefix(o, "RestrictAddressFamilies=") {
			options[i] = o + " " + families
		}
	}
	return options
}

// dynamicUserOptions returns options for a daemon that serves untrusted clients. It runs as a dynamic user with one
// capability. Its kubeconfig still belongs to root; at start, systemd copies it to the path that credential returns,
// which no other user can read.
func dynamicUserOptions(kubeconfig, capability string) []string {
	return append([]string{
		"DynamicUser=yes", "LoadCredential=" + credentialName + ":" + kubeconfig, "CapabilityBoundingSet=" + capability,
		"AmbientCapabilities=" + capability,
	}, confinement...)
}

const credentialName = "kubeconfig"

// credentialPath returns the path of the kubeconfig of a unit with the options of dynamicUserOptions.
func credentialPath(unit string) string { return credentialOf(unit, credentialName) }

// credentialOf returns the path of a credential of a unit.
func credentialOf(unit, credential string) string {
	return "/run/credentials/" + unit + ".service/" + credential
}

// fileHeader is the first line of files that clusterctl writes.
const fileHeader = "# written by clusterctl"

// addUnit adds a unit file, and a step after all files that runs the unit.
func (b *builder) addUnit(s service) {
	kind := "notify"
	if s.isReadyOnStart {
		kind = "exec"
	}
	text := []string{
		fileHeader + ": changes made here are put back by the next apply",
		"[Unit]", "Description=" + s.description, "Documentation=https://kubernetes.io/docs/",
		"Wants=network-online.target", "After=network-online.target " + s.startAfter,
		"StartLimitIntervalSec=0", "",
		"[Service]", "Type=" + kind, "ExecStart=" + strings.Join(escapeArguments(s.exec), " \\\n  "),
		"Restart=always", "RestartSec=" + cmp.Or(s.restartDelay, defaultRestartDelay), "TimeoutStartSec=180",
		"TimeoutStopSec=30",
		"LimitNOFILE=1048576",
	}
	if s.hasWatchdog {
		// A kubelet that hangs must restart before its node counts as lost, which takes 40 seconds. A daemon that gets
		// too little CPU extends the timeout (daemons/run/watchdog).
		text = append(text, "WatchdogSec=30")
	}
	if !s.runsContainers {
		text = append(text, timerSlack)
	}
	if !s.needsProxy {
		text = append(text, clusterOnlyOptions()...)
	}
	text = append(append(text, s.options...), "", "[Install]", "WantedBy=multi-user.target")
	path := b.addPrivateFile(step.UnitDir+s.name+".service", joinLines(text...))
	b.add(&step.DropIns{Unit: s.name + ".service"})
	b.heldDaemons = append(b.heldDaemons,
		step.HeldDaemon{Unit: s.name + ".service", Program: s.exec[0], URL: s.health, Client: s.credentials})
	b.addUnitStep(
		&step.Unit{
			Name:               s.name + ".service",
			Files:              append([]string{path, s.exec[0]}, s.reads...),
			CanStartInParallel: s.canStartInParallel,
			Timeout:            b.Cluster.Roll.Timeout,
		},
	)
}

// Replacers for characters that systemd interprets in arguments and in quotes.
var (
	specifierEscaper = strings.NewReplacer(`%`, `%%`, `$`, `$$`)
	quoteEscaper     = strings.NewReplacer(`\`, `\\`, `"`, `\"`)
)

// escapeArguments quotes arguments so that systemd does not interpret them.
func escapeArguments(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		s = specifierEscaper.Replace(s)
		if strings.ContainsAny(s, " \t\"'\\") {
			s = `"` + quoteEscaper.Replace(s) + `"`
		}
		out[i] = s
	}
	return out
}
