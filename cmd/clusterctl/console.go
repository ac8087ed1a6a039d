package main

import (
	"bufio"
	"fmt"
	"strings"

	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/spf13/cobra"
	"github.com/zclconf/go-cty/cty"

	"clusterctl/hcl/block"
	"clusterctl/hcl/load"
)

func newConsole() *cobra.Command {
	var flags configFlags
	c := &cobra.Command{
		Use:   "console [FOLDER|FILE]",
		Short: "Evaluate expressions, one per line, with the configuration's values",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			configuration, err := flags.load(c, args)
			if err != nil {
				return err
			}
			failed := false
			lines := bufio.NewScanner(readerUntil(c.Context(), c.InOrStdin()))
			for lines.Scan() {
				text := strings.TrimSpace(lines.Text())
				if text == "" {
					continue
				}
				if text == "exit" {
					break
				}
				expr, diags := load.ParseExpression(text, "console")
				if !diags.HasErrors() {
					v, more := configuration.Evaluate(expr)
					if diags = more; !diags.HasErrors() {
						if !v.IsWhollyKnown() {
							fmt.Fprintln(c.OutOrStdout(), "(known only later)")
							continue
						}
						fmt.Fprintln(c.OutOrStdout(), string(hclwrite.Format(valueTokens(v).Bytes())))
						continue
					}
				}
				failed = true
				for _, d := range block.SuggestFunctions(diags, load.FunctionNames()) {
					fmt.Fprintln(c.ErrOrStderr(), maskSecrets(d.Summary+": "+d.Detail, configuration.Cluster.Secrets))
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

// valueTokens formats a value in the syntax of the language, without its sensitive parts.
func valueTokens(v cty.Value) hclwrite.Tokens {
	switch ty := v.Type(); {
	case v.IsMarked():
		return hclwrite.Tokens{{Type: hclsyntax.TokenIdent, Bytes: []byte("(sensitive value)")}}
	case !v.ContainsMarked():
		return hclwrite.TokensForValue(v)
	case ty.IsObjectType() || ty.IsMapType():
		var list []hclwrite.ObjectAttrTokens
		for it := v.ElementIterator(); it.Next(); {
			key, e := it.Element()
			list = append(list, hclwrite.ObjectAttrTokens{Name: hclwrite.TokensForValue(key), Value: valueTokens(e)})
		}
		return hclwrite.TokensForObject(list)
	}
	var list []hclwrite.Tokens
	for it := v.ElementIterator(); it.Next(); {
		_, e := it.Element()
		list = append(list, valueTokens(e))
	}
	return hclwrite.TokensForTuple(list)
}
