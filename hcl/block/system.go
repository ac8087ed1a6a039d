package block

import (
	"regexp"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // a computer need not have the names of time zones

	"github.com/hashicorp/hcl/v2"

	"clusterctl/hcl/config"
)

type systemBlock struct {
	Packages []string     `hcl:"packages,optional" doc:"Packages of the distribution that are installed on every machine, as [\"nfs-common\"]. A package that is removed from the list stays installed. For Debian and its derivatives."`
	Upgrade  string       `hcl:"upgrade,optional" doc:"Which of the distribution's packages apply upgrades, on drained nodes and on one machine of the control plane at a time: security, those of its security archive; all; or none. Apply upgrades exactly what the plan shows; apply updates package lists that are older than a day; their upgrades appear in the next plan." default:"\"none\""`
	Reboot   string       `hcl:"reboot,optional" doc:"Whether apply reboots a machine whose system requires it, as after a kernel upgrade: when-required or never." default:"\"never\""`
	Proxy    *proxyBlock  `hcl:"proxy,block" doc:"Proxy for connections from machines to hosts outside the cluster. See \"Machines behind a proxy\" in operations.md. A change restarts the daemons that use it."`
	Window   *windowBlock `hcl:"window,block" doc:"When upgrades and reboots are allowed. At other times apply does everything else, and reports when the window opens."`
}

type windowBlock struct {
	Days     []string `hcl:"days,optional" doc:"Days of the week on which it opens, as [\"sat\", \"sun\"]." default:"all"`
	From     string   `hcl:"from" doc:"When it opens, as \"02:00\"."`
	To       string   `hcl:"to" doc:"When it closes: no machine is started after that. A time before from is on the next day."`
	Timezone string   `hcl:"timezone,optional" doc:"Time zone, as \"Europe/Berlin\"." default:"\"UTC\""`
}

var packageName = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]+$`)

func decodeSystem(b *hcl.Block, raw *systemBlock, c *config.Cluster) (diags hcl.Diagnostics) {
	if raw == nil {
		return nil
	}
	for _, name := range raw.Packages {
		if !packageName.MatchString(name) {
			diags = append(diags, newError(nestedRange(b, "system", "packages"), "Invalid name of a package",
				"%q names no package: write it without version and architecture, as \"nfs-common\".", name))
		}
	}
	c.System.Packages = slices.Compact(slices.Sorted(slices.Values(raw.Packages)))
	switch raw.Upgrade {
	case config.UpgradeSecurity, config.UpgradeAll:
		c.System.Upgrade = raw.Upgrade
	case "", "none":
	default:
		diags = append(diags, newError(nestedRange(b, "system", "upgrade"), "Unknown kind of upgrade",
			"%q is not known: write \"security\", \"all\" or \"none\".", raw.Upgrade))
	}
	switch raw.Reboot {
	case "when-required":
		c.System.Reboot = true
	case "", "never":
	default:
		diags = append(diags, newError(nestedRange(b, "system", "reboot"), "Unknown word about reboots",
			"%q is not known: write \"when-required\" or \"never\".", raw.Reboot))
	}
	if raw.Proxy != nil {
		p, more := decodeProxy(deepRange(b, "system", "proxy"), raw.Proxy)
		diags = append(diags, more...)
		c.System.Proxy = p
		switch {
		case c.Runtime.Source == config.RuntimeDistribution:
			diags = append(diags, newError(deepRange(b, "system", "proxy"), "Proxy of a runtime that is the "+
				"machine's own",
				"clusterctl does not manage the unit of a distribution's containerd, so image pulls would not use "+
					"the proxy. Remove the block, and set the proxy in a drop-in on the machine."))
		case c.ControlPlaneForm == config.FormStaticPods && (hasPassword(p.HTTP) || hasPassword(p.HTTPS)):
			diags = append(diags, newError(deepRange(b, "system", "proxy"), "Proxy password in a static pod",
				"The manifest of an API server that is a static pod contains the proxy, and every user who can read "+
					"pods can read it. Use a proxy without a password, or control_plane = \"systemd\"."))
		}
	}
	if raw.Window == nil {
		return diags
	}
	if !c.System.HasMaintenance() && !diags.HasErrors() {
		diags = append(diags, newError(deepRange(b, "system", "window"), "A window for nothing",
			"Nothing is upgraded and nothing rebooted: write upgrade or reboot, or leave the window out."))
	}
	w, more := decodeWindow(b, raw.Window)
	c.System.Window = w
	return append(diags, more...)
}

var weekdays = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

func decodeWindow(b *hcl.Block, raw *windowBlock) (*config.Window, hcl.Diagnostics) {
	var diags hcl.Diagnostics
	at := func(name string) *hcl.Range { return deepRange(b, "system", "window", name) }
	w := &config.Window{Zone: time.UTC}
	for _, name := range raw.Days {
		i := slices.Index(weekdays, strings.ToLower(name))
		if i < 0 {
			diags = append(diags, newError(at("days"), "Unknown day", "%q is not a day: write %s.", name,
				strings.Join(weekdays, ", ")))
			continue
		}
		w.Days = append(w.Days, time.Weekday(i))
	}
	if raw.Days == nil {
		for i := range weekdays {
			w.Days = append(w.Days, time.Weekday(i))
		}
	} else if len(raw.Days) == 0 {
		diags = append(diags, newError(at("days"), "A window that never opens", "Leave days out for all of them."))
	}
	for _, p := range []struct {
		name, text string
		into       *time.Duration
	}{{"from", raw.From, &w.From}, {"to", raw.To, &w.To}} {
		t, err := time.Parse("15:04", p.text)
		if err != nil {
			diags = append(diags, newError(at(p.name), "Invalid time of day", "%q is not a time of day, as \"02:00\".",
				p.text))
		}
		*p.into = time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute
	}
	if raw.Timezone != "" {
		zone, err := time.LoadLocation(raw.Timezone)
		if err != nil || raw.Timezone == "Local" {
			return w, append(diags, newError(at("timezone"), "Unknown time zone",
				"%q is not known: write a name as \"Europe/Berlin\", or \"UTC\".", raw.Timezone))
		}
		w.Zone = zone
	}
	return w, diags
}
