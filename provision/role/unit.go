package role

import (
	"cmp"
	"slices"
	"strings"

	"clusterctl/provision/host"
	"clusterctl/provision/step"
)

// service is what differs between the units.
type service struct {
	name        string
	description string
	after       string   // units to start after
	exec        []string // program and arguments
	reads       []string // files whose change restarts it, besides the unit and the program
	watchdog    bool     // it tells systemd that it is alive
	options     []string // of [Service]
	beside      bool     // may start together with its neighbours
	eager       bool     // has started once it runs: what it says it is ready for needs others that come later
	again       string   // how long after it has ended it is started again; defaultAgain when empty
	health      string   // where it says whether it is ready
	as          host.Client
	hosts       bool // starts what is other people's, and inherits what is set here
	outside     bool // connects to hosts outside the cluster; options has those that builder.outside returns
}

// slack is how late the system may wake a daemon, which costs it a good part less (daemons/run/slack.go).
const slack = "TimerSlackNSec=4ms"

// defaultAgain is how long after it has ended a daemon is started again.
const defaultAgain = "1"

// confined is what a daemon that only speaks over the network can do without.
var confined = []string{
	"NoNewPrivileges=yes", "ProtectSystem=full", "ProtectHome=yes", "PrivateTmp=yes", "ProtectControlGroups=yes",
	"ProtectKernelModules=yes", "ProtectKernelTunables=yes", "RestrictSUIDSGID=yes", "RestrictRealtime=yes",
	"LockPersonality=yes",
	"RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX", "SystemCallArchitectures=native",
}

// speaking returns options of a daemon that needs families of sockets besides those of the others.
func speaking(options []string, families string) []string {
	options = slices.Clone(options)
	for i, o := range options {
		if strings.HasPrefix(o, "RestrictAddressFamilies=") {
			options[i] = o + " " + families
		}
	}
	return options
}

// ownUser has a daemon that speaks with strangers run as a user of its own, whom systemd makes for as long as it runs,
// with one capability. It reads its kubeconfig, which stays root's, at the path that credential returns, as it is when
// the daemon starts; nobody else sees that.
func ownUser(kubeconfig, capability string) []string {
	return append([]string{
		"DynamicUser=yes", "LoadCredential=" + credentialName + ":" + kubeconfig, "CapabilityBoundingSet=" + capability,
		"AmbientCapabilities=" + capability,
	}, confined...)
}

const credentialName = "kubeconfig"

// credential is where a unit of ownUser has its kubeconfig.
func credential(unit string) string { return "/run/credentials/" + unit + ".service/" + credentialName }

// written is how a unit's file of ours begins.
const written = "# written by clusterctl"

// unit adds a unit's file and, after all files, that it runs with them.
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
		// A kubelet that hangs restarts before its node counts as lost, which takes 40 seconds. A daemon that gets too
		// little CPU extends the timeout (daemons/run/watchdog).
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

// What systemd reads in arguments, and in quotes.
var (
	signs  = strings.NewReplacer(`%`, `%%`, `$`, `$$`)
	quotes = strings.NewReplacer(`\`, `\\`, `"`, `\"`)
)

// escape keeps systemd from reading its own signs into arguments.
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
