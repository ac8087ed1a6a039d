package block

import (
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"

	"clusterctl/hcl/config"
)

type rollBlock struct {
	MaxUnavailable string `hcl:"max_unavailable,optional" doc:"How many nodes are changed at a time if the change restarts daemons: a number, or a share of all nodes as \"25%\", rounded down; at least one. If nodes have to be drained, nodes that are not ready count as well. Machines of the control plane are always changed one by one. In an update, the first node is changed alone." default:"\"10%\""`
	Hold           string `hcl:"hold,optional" doc:"How long all daemons of a new release must be healthy on a machine without a restart before the next machine is changed: from 1s to 1h. A machine on which they are not healthy rolls back to the former release by itself." default:"\"10s\""`
	Timeout        string `hcl:"timeout,optional" doc:"How long a daemon may take to start, and again to become ready, before it counts as failed: from 1s to 1h." default:"\"2m\""`
	Pause          string `hcl:"pause,optional" doc:"How long to wait after a machine whose daemons were restarted, before the next machine: time to check by other means that all is well. From 1s to 24h." default:"none"`
	OnFailure      string `hcl:"on_failure,optional" doc:"What happens to the other nodes if one fails: stop leaves them unchanged; continue changes them, and reports failed nodes at the end. Machines of the control plane that have not been changed are always left unchanged." default:"\"stop\""`
}

func decodeRoll(b *hcl.Block, raw *rollBlock, c *config.Cluster) (diags hcl.Diagnostics) {
	c.Roll.OnFailure = config.OnFailureStop
	if raw == nil {
		return nil
	}
	if raw.MaxUnavailable != "" {
		text, share := strings.CutSuffix(raw.MaxUnavailable, "%")
		if n, err := strconv.Atoi(text); err != nil || n < 1 || share && n > 100 {
			diags = append(diags, newError(nestedRange(b, "roll", "max_unavailable"), "Invalid number of nodes",
				"%q is neither a number of nodes, at least 1, nor a share of them as \"10%%\".", raw.MaxUnavailable))
		}
		c.Roll.MaxUnavailable = raw.MaxUnavailable
	}
	for _, d := range []struct {
		name, text string
		maximum    time.Duration
		into       *time.Duration
	}{{"hold", raw.Hold, time.Hour, &c.Roll.Hold}, {"timeout", raw.Timeout, time.Hour, &c.Roll.Timeout},
		{"pause", raw.Pause, 24 * time.Hour, &c.Roll.Pause}} {
		if d.text == "" {
			continue
		}
		var err error
		if *d.into, err = time.ParseDuration(d.text); err != nil || *d.into < time.Second || *d.into > d.maximum {
			diags = append(diags, newError(nestedRange(b, "roll", d.name), "Invalid duration",
				"%q is not a duration from 1s to %.0fh, as \"30s\".", d.text, d.maximum.Hours()))
		}
	}
	c.Roll.OnFailure = orDefault(raw.OnFailure, config.OnFailureStop)
	if f := c.Roll.OnFailure; f != config.OnFailureStop && f != config.OnFailureContinue {
		diags = append(diags, newError(nestedRange(b, "roll", "on_failure"), "Unknown reaction to a failure",
			"%q is not known: write %q to leave the other nodes as they are, or %q to go on with them.", f,
			config.OnFailureStop, config.OnFailureContinue))
	}
	return diags
}
