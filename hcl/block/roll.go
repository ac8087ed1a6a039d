package block

import (
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"

	"clusterctl/hcl/config"
)

type rollBlock struct {
	MaxUnavailable string `hcl:"max_unavailable,optional" doc:"How many nodes are changed at a time when that restarts something there: a number, or a share of all nodes as \"25%\", rounded down; one at least. Nodes that are not ready count as well when others are to be drained. Machines of the control plane are always changed one by one. Of an update the first node goes alone." default:"\"10%\""`
	Hold           string `hcl:"hold,optional" doc:"How long the daemons of a new release have to be well on a machine, all of them together and none started again, before the next machine's turn: from 1s to 1h. A machine on which they are not goes back to the former release by itself." default:"\"10s\""`
	Timeout        string `hcl:"timeout,optional" doc:"How long a daemon may take to start, and then to be ready, before it is taken for one that does not work: from 1s to 1h." default:"\"2m\""`
	Pause          string `hcl:"pause,optional" doc:"How long to wait after a machine whose daemons were started anew, before the next one's turn: to see by one's own means that all is well. From 1s to 24h." default:"none"`
	OnFailure      string `hcl:"on_failure,optional" doc:"What becomes of the other nodes when one has failed: stop leaves them as they are; continue goes on with them, and says at the end which have failed. Machines of the control plane that have not been changed are always left as they are." default:"\"stop\""`
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
		most       time.Duration
		into       *time.Duration
	}{{"hold", raw.Hold, time.Hour, &c.Roll.Hold}, {"timeout", raw.Timeout, time.Hour, &c.Roll.Timeout},
		{"pause", raw.Pause, 24 * time.Hour, &c.Roll.Pause}} {
		if d.text == "" {
			continue
		}
		var err error
		if *d.into, err = time.ParseDuration(d.text); err != nil || *d.into < time.Second || *d.into > d.most {
			diags = append(
				diags,
				newError(
					nestedRange(b, "roll", d.name),
					"Invalid duration",
					"%q is no duration from 1s to %.0fh, as \"30s\".",
					d.text,
					d.most.Hours(),
				),
			)
		}
	}
	c.Roll.OnFailure = orDefault(raw.OnFailure, config.OnFailureStop)
	if f := c.Roll.OnFailure; f != config.OnFailureStop && f != config.OnFailureContinue {
		diags = append(diags, newError(
			nestedRange(b, "roll", "on_failure"),
			"Unknown reaction to a failure",
			"%q is not known: write %q to leave the other nodes as they are, or %q to go on with them.",
			f,
			config.OnFailureStop,
			config.OnFailureContinue,
		))
	}
	return diags
}
