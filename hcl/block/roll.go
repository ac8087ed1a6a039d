package block

import (
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"clusterctl/hcl/config"
)

type rollBlock struct {
	MaxUnavailable string `hcl:"max_unavailable,optional" doc:"How many nodes are changed at a time when that restarts something there: a number, or a share of all nodes as \"25%\", rounded down; one at least. Nodes that are not ready count as well when others are to be drained. Machines of the control plane are always changed one by one." default:"\"10%\""`
}

func decodeRoll(b *hcl.Block, raw *rollBlock, c *config.Cluster) (diags hcl.Diagnostics) {
	if raw == nil || raw.MaxUnavailable == "" {
		return nil
	}
	text, share := strings.CutSuffix(raw.MaxUnavailable, "%")
	if n, err := strconv.Atoi(text); err != nil || n < 1 || share && n > 100 {
		diags = append(diags, fail(nested(b, "roll", "max_unavailable"), "Invalid number of nodes",
			"%q is neither a number of nodes, at least 1, nor a share of them as \"10%%\".", raw.MaxUnavailable))
	}
	c.Roll.MaxUnavailable = raw.MaxUnavailable
	return diags
}
