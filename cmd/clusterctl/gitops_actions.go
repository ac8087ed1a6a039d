package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"clusterctl/daemons/config/gitsource"
	"clusterctl/daemons/gitops"
	"clusterctl/hcl/config"
	"clusterctl/provision/bundle"
	"clusterctl/provision/state"
	"clusterctl/provision/workload"
)

// treeNode is an object of a source with its health.
type treeNode struct {
	Object string `json:"object"`
	Health string `json:"health"`
	Reason string `json:"reason,omitempty"`
	Pruned bool   `json:"pruned,omitempty"` // no longer rendered, and to be deleted
}

// sourceTree is what `gitops tree` prints about a source.
type sourceTree struct {
	sourceStatus
	DependsOn []string   `json:"dependsOn,omitempty"`
	Tree      []treeNode `json:"tree"`
}

func newGitOpsTree() *cobra.Command {
	var flags apiFlags
	c := &cobra.Command{
		Use:   "tree [SOURCE…]",
		Short: "Show the objects of the sources and their health",
		RunE: func(c *cobra.Command, args []string) error {
			config, _, list, err := flags.listSources(c, args)
			if err != nil {
				return err
			}
			live, err := workload.NewLive(config, workload.Manager)
			if err != nil {
				return err
			}
			trees := make([]sourceTree, len(list))
			for i, s := range list {
				if trees[i], err = newSourceTree(c.Context(), live, s); err != nil {
					return err
				}
			}
			return flags.write(c, trees, func(w io.Writer) error { return printTrees(w, trees) })
		},
	}
	flags.add(c)
	return c
}

// newSourceTree reads the objects of a source with the rights of the caller. An object that cannot be read has the
// health Unknown.
func newSourceTree(ctx context.Context, live *workload.Live, s *gitops.Source) (sourceTree, error) {
	tree := sourceTree{sourceStatus: statusOfSource(s), Tree: []treeNode{}}
	for _, d := range s.Spec.DependsOn {
		namespace := d.Namespace
		if namespace == "" {
			namespace = s.Namespace
		}
		tree.DependsOn = append(tree.DependsOn, namespace+"/"+d.Name)
	}
	pruning := map[string]bool{}
	for _, text := range s.Status.Pruning {
		pruning[text] = true
	}
	for _, text := range s.Status.Inventory {
		id, err := gitops.ParseID(text)
		if err != nil {
			return tree, err
		}
		node := treeNode{Object: text, Pruned: pruning[text]}
		found, err := live.FindEach(ctx, []state.Object{{Address: text, APIVersion: id.APIVersion, Kind: id.Kind,
			Namespace: id.Namespace, Name: id.Name}})
		if err != nil {
			node.Health, node.Reason = "Unknown", err.Error()
		} else {
			health, reason := gitops.Health(found[0])
			node.Health, node.Reason = string(health), reason
		}
		tree.Tree = append(tree.Tree, node)
	}
	return tree, nil
}

// printTrees prints each source with its objects.
func printTrees(out io.Writer, trees []sourceTree) error {
	if len(trees) == 0 {
		_, err := fmt.Fprintln(out, "no GitSources")
		return err
	}
	for _, t := range trees {
		fmt.Fprintf(out, "%s/%s  Ready=%s  %s\n", t.Namespace, t.Name, t.Ready, shortRevision(t.Revision))
		if len(t.DependsOn) > 0 {
			fmt.Fprintf(out, "│  depends on %s\n", strings.Join(t.DependsOn, ", "))
		}
		for i, n := range t.Tree {
			branch := "├─"
			if i == len(t.Tree)-1 {
				branch = "└─"
			}
			text := fmt.Sprintf("%s %s  %s", branch, n.Object, n.Health)
			if n.Reason != "" {
				text += ": " + config.EscapeLine(n.Reason)
			}
			if n.Pruned {
				text += " (to be deleted)"
			}
			if _, err := fmt.Fprintln(out, text); err != nil {
				return err
			}
		}
	}
	return nil
}

func newGitOpsDiff() *cobra.Command {
	var flags apiFlags
	var revision string
	c := &cobra.Command{
		Use:     "diff SOURCE",
		Aliases: []string{"plan"},
		Short:   "Show what the next reconciliation of a source would change; exit with 2 if there are changes",
		Long: `Fetch and render a source on this computer, and compare its objects with the cluster. Nothing is changed.

The program gitops-controller, which lies beside clusterctl, does this with the caller's credentials. The caller must be
allowed to impersonate the service account of the source. Exits with 0 if there are no changes and with 2 otherwise.

With --revision, the commit, tag or branch is used instead of what the source selects: before a merge, it shows what the
merge would change.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			dir, err := os.MkdirTemp("", "clusterctl-gitops-*")
			if err != nil {
				return err
			}
			defer os.RemoveAll(dir)
			kubeconfig, err := flags.kubeconfigFile(c, dir)
			if err != nil {
				return err
			}
			text, err := runDiff(c.Context(), kubeconfig, parseSource(args[0]), revision)
			if err != nil {
				return err
			}
			preview, err := decodePreview(text)
			if err != nil {
				return err
			}
			if err := flags.write(c, preview, func(w io.Writer) error { return printPreview(w, preview) }); err != nil {
				return err
			}
			if len(preview.Changes) > 0 {
				return exitCode(2)
			}
			return nil
		},
	}
	flags.add(c)
	c.Flags().StringVar(&revision, "revision", "", "`commit`, tag or branch, version of a chart, or digest of an "+
		"artifact; what the source selects when empty")
	return c
}

// gitopsProgram returns the path of gitops-controller, which is beside clusterctl.
func gitopsProgram() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	if self, err = filepath.EvalSymlinks(self); err != nil {
		return "", err
	}
	program := filepath.Join(filepath.Dir(self), bundle.GitOps)
	if _, err := os.Stat(program); err != nil {
		return "", fmt.Errorf("%s is not beside clusterctl: make build puts the whole bundle there", bundle.GitOps)
	}
	return program, nil
}

// runDiff runs gitops-controller with a kubeconfig, and returns its output.
func runDiff(ctx context.Context, kubeconfig string, key gitops.Key, revision string) ([]byte, error) {
	program, err := gitopsProgram()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program, "diff", "--kubeconfig", kubeconfig, "--revision="+revision,
		key.String())
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		text := strings.TrimSpace(strings.TrimPrefix(problems.String(), bundle.GitOps+": "))
		if text == "" {
			text = err.Error()
		}
		return nil, fmt.Errorf("compare %s with the cluster: %s", key, text)
	}
	return out, nil
}

func newGitOpsSync() *cobra.Command {
	var flags apiFlags
	var wait time.Duration
	c := &cobra.Command{
		Use:   "sync [SOURCE…]",
		Short: "Reconcile sources now, and wait for the result; exit with 1 if one is not ready",
		RunE: func(c *cobra.Command, args []string) error {
			_, client, list, err := flags.listSources(c, args)
			if err != nil {
				return err
			}
			request := time.Now().UTC().Format(time.RFC3339Nano)
			names := []string{}
			for _, s := range list {
				if s.Spec.Suspend {
					if len(args) > 0 {
						return fmt.Errorf("%s is suspended: run clusterctl gitops resume %s", s.Key(), s.Key())
					}
					continue
				}
				patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, gitsource.SyncAnnotation, request)
				if err := client.patch(c.Context(), s.Key(), patch); err != nil {
					return err
				}
				names = append(names, s.Key().String())
			}
			if wait == 0 || len(names) == 0 {
				return nil
			}
			list, err = client.awaitSync(c.Context(), names, request, wait)
			if err != nil {
				return err
			}
			return flags.printStatus(c, list)
		},
	}
	flags.add(c)
	c.Flags().DurationVar(&wait, "wait", 6*time.Minute, "how long to wait for the result; 0: not at all")
	return c
}

// patch changes a source.
func (s sourcesClient) patch(ctx context.Context, key gitops.Key, patch string) error {
	_, err := s.Namespace(key.Namespace).Patch(ctx, key.Name, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{FieldManager: "clusterctl-command"})
	if err != nil {
		return fmt.Errorf("change GitSource %s: %w", key, err)
	}
	return nil
}

// syncPoll is the interval at which sources are read until they are reconciled.
const syncPoll = 500 * time.Millisecond

// awaitSync waits until sources have carried out a request and make no further progress by themselves.
func (s sourcesClient) awaitSync(ctx context.Context, names []string, request string,
	wait time.Duration) ([]*gitops.Source, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	tick := time.NewTicker(syncPoll)
	defer tick.Stop()
	for {
		list, err := s.list(ctx, names)
		if err != nil {
			return nil, err
		}
		waiting := ""
		for _, source := range list {
			if state := statusOfSource(source); source.Status.HandledSync != request || state.Ready == "Unknown" {
				waiting = source.Key().String() + ": " + state.Message
			}
		}
		if waiting == "" {
			return list, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("after %s, %s", wait, waiting)
		case <-tick.C:
		}
	}
}

func newGitOpsSuspend(suspend bool) *cobra.Command {
	var flags apiFlags
	verb, short := "resume", "Reconcile suspended sources again"
	if suspend {
		verb, short = "suspend", "Leave sources as they are until they are resumed"
	}
	c := &cobra.Command{
		Use: verb + " SOURCE…", Short: short, Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			_, client, list, err := flags.listSources(c, args)
			if err != nil {
				return err
			}
			for _, s := range list {
				if err := client.patch(c.Context(), s.Key(), fmt.Sprintf(`{"spec":{"suspend":%t}}`, suspend)); err != nil {
					return err
				}
				s.Spec.Suspend = suspend
			}
			return flags.writeStatuses(c, statusesOf(list))
		},
	}
	flags.add(c)
	return c
}
