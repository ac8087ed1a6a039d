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
	name        string
	description string
	after       string   // the unit to start after
	exec        []string // program and arguments
	reads       []string // files whose change restarts the unit, besides the unit file and the program
	watchdog    bool     // it notifies systemd's watchdog
	options     []string // lines of [Service]
	beside      bool     // may start in parallel with neighbouring units
	eager       bool     // counts as started once it runs, because its readiness depends on units that start later
	again       string   // restart delay; defaultAgain if empty
	health      string   // URL of the readiness check
	as          host.Client
	hosts       bool // its child processes are containers, which inherit its settings
	outside     bool // connects to hosts outside the cluster; options must include those of builder.outside
}

// slack lets the kernel delay a daemon's wake-ups, which reduces its CPU use (daemons/run/slack.go).
const slack = "TimerSlackNSec=4ms"

// defaultAgain is the delay in seconds before systemd restarts a daemon.
const defaultAgain = "1"

// confined restricts daemons that only communicate over the network.
var confined = []string{
	"NoNewPrivileges=yes", "ProtectSystem=full", "ProtectHome=yes", "PrivateTmp=yes", "ProtectControlGroups=yes",
	"ProtectKernelModules=yes", "ProtectKernelTunables=yes", "RestrictSUIDSGID=yes", "RestrictRealtime=yes",
	"LockPersonality=yes",
	"RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX", "SystemCallArchitectures=native",
}

// speaking returns options that also allow other socket families.
func speaking(options []string, families string) []string {
	options = slices.Clone(options)
	for i, o := range options {
		if strings.HasPrefix(o, "RestrictAddressFamilies=") {
			options[i] = o + " " + families
		}
	}
	return options
}

// ownUser returns options for a daemon that serves untrusted clients. It runs as a dynamic user with one capability.
// Its kubeconfig still belongs to root; at start, systemd copies it to the path that credential returns, which no other
// user can read.
func ownUser(kubeconfig, capability string) []string {
	return append([]string{
		"DynamicUser=yes", "LoadCredential=" + credentialName + ":" + kubeconfig, "CapabilityBoundingSet=" + capability,
		"AmbientCapabilities=" + capability,
	}, confined...)
}

const credentialName = "kubeconfig"

// credential returns the path of the kubeconfig of a unit with the options of ownUser.
func credential(unit string) string { return "/run/credentials/" + unit + ".service/" + credentialName }

// written is the first line of files that clusterctl writes.
const written = "# written by clusterctl"

// unit adds a unit file, and a step after all files that runs the unit.
func (b *builder) unit(s service) {
	kind := "notify"
	if s.eager {
		kind = "exec"
	}
	text := []string{
		written + ": changes made here are put back by the next apply",
		"[Unit]", "Description=" + s.description, "Documentation=https://kubernetes.io/docs/",
		"Wants=network-online.target", "After=network-online.target " + s.after,
		"StartLimitIntervalSec=0", "",
		"[Service]", "Type=" + kind, "ExecStart=" + strings.Join(escape(s.exec), " \\\n  "),
		"Restart=always", "RestartSec=" + cmp.Or(s.again, defaultAgain), "TimeoutStartSec=180", "TimeoutStopSec=30",
		"LimitNOFILE=1048576",
	}
	if s.watchdog {
		// A kubelet that hangs must restart before its node counts as lost, which takes 40 seconds. A daemon that gets
		// too little CPU extends the timeout (daemons/run/watchdog).
		text = append(text, "WatchdogSec=30")
	}
	if !s.hosts {
		text = append(text, slack)
	}
	if !s.outside {
		text = append(text, insideOnly()...)
	}
	text = append(append(text, s.options...), "", "[Install]", "WantedBy=multi-user.target")
	path := b.private(step.UnitDir+s.name+".service", lines(text...))
	b.add(&step.DropIns{Unit: s.name + ".service"})
	b.held = append(b.held, step.Held{Unit: s.name + ".service", Program: s.exec[0], URL: s.health, Client: s.as})
	b.run(
		&step.Unit{
			Name:    s.name + ".service",
			Files:   append([]string{path, s.exec[0]}, s.reads...),
			Beside:  s.beside,
			Timeout: b.Cluster.Roll.Timeout,
		},
	)
}

// Replacers for characters that systemd interprets in arguments and in quotes.
var (
	signs  = strings.NewReplacer(`%`, `%%`, `$`, `$$`)
	quotes = strings.NewReplacer(`\`, `\\`, `"`, `\"`)
)

// escape quotes arguments so that systemd does not interpret them.
func escape(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		s = signs.Replace(s)
		if strings.ContainsAny(s, " \t\"'\\") {
			s = `"` + quotes.Replace(s) + `"`
		}
		out[i] = s
	}
	return out
}
