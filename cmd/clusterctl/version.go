package main

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"

	"clusterctl/hcl/config"
)

// version is set by the linker for a release.
var version = "dev"

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Say which release this is and which Kubernetes it brings",
		Args:  cobra.NoArgs,
		Run: func(c *cobra.Command, _ []string) {
			revision := ""
			if info, ok := debug.ReadBuildInfo(); ok {
				for _, s := range info.Settings {
					if s.Key == "vcs.revision" {
						revision = " (" + s.Value[:min(12, len(s.Value))] + ")"
					}
				}
			}
			fmt.Fprintf(c.OutOrStdout(), "clusterctl %s%s, Kubernetes %s\n", version, revision, config.KubernetesVersion)
		},
	}
}
