package main

import (
	"bufio"
	"fmt"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/spf13/cobra"
)

func newConsole() *cobra.Command {
	var flags configFlags
	c := &cobra.Command{
		Use:   "console [FOLDER|FILE]",
		Short: "Evaluate expressions, one a line, with the configuration's values",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			configuration, err := flags.load(c, args)
			if err != nil {
				return err
			}
			failed := false
			lines := bufio.NewScanner(c.InOrStdin())
			for lines.Scan() {
				text := strings.TrimSpace(lines.Text())
				if text == "" {
					continue
				}
				if text == "exit" {
					break
				}
				expr, diags := hclsyntax.ParseExpression([]byte(text), "console", hcl.InitialPos)
				if !diags.HasErrors() {
					v, more := configuration.Evaluate(expr)
					if diags = more; !diags.HasErrors() {
						if !v.IsWhollyKnown() {
							fmt.Fprintln(c.OutOrStdout(), "(known only later)")
							continue
						}
						out := string(hclwrite.Format(hclwrite.TokensForValue(v).Bytes()))
						for _, secret := range configuration.Cluster.Secrets {
							out = strings.ReplaceAll(out, secret, "(sensitive)")
						}
						fmt.Fprintln(c.OutOrStdout(), out)
						continue
					}
				}
				failed = true
				for _, d := range diags {
					fmt.Fprintf(c.ErrOrStderr(), "%s: %s\n", d.Summary, d.Detail)
				}
			}
			if err := lines.Err(); err != nil {
				return err
			}
			if failed {
				return exitCode(1)
			}
			return nil
		},
	}
	flags.add(c)
	return c
}
