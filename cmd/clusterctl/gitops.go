package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"clusterctl/certs"
	"clusterctl/daemons/config/gitsource"
	"clusterctl/daemons/gitops"
	"clusterctl/hcl/config"
)

func newGitOps() *cobra.Command {
	c := &cobra.Command{Use: "gitops", Short: "Show and control the Git repositories that the cluster follows"}
	c.AddCommand(newGitOpsStatus(), newGitOpsTree(), newGitOpsDiff(), newGitOpsSync(), newGitOpsSuspend(true),
		newGitOpsSuspend(false), newGitOpsLogs())
	return c
}

// apiFlags are the flags of commands that ask the API of a cluster.
type apiFlags struct {
	folderFlags
	kubeconfig string
	output     string
}

const (
	outputJSON = "json"
	outputYAML = "yaml"
)

func (f *apiFlags) add(c *cobra.Command) {
	f.folderFlags.add(c, false)
	c.Flags().StringVar(&f.kubeconfig, "kubeconfig", "", "`file` with credentials; those of the folder's state when "+
		"empty")
	c.Flags().StringVarP(&f.output, "output", "o", "", "`format`: json or yaml; a table when empty")
}

// checkOutput returns an error if the format is unknown.
func (f *apiFlags) checkOutput() error {
	if f.output != "" && f.output != outputJSON && f.output != outputYAML {
		return fmt.Errorf("-output=%s: it is json or yaml", f.output)
	}
	return nil
}

// connect returns the configuration of a client with the rights of the caller.
func (f *apiFlags) connect(c *cobra.Command) (*rest.Config, error) {
	if err := f.checkOutput(); err != nil {
		return nil, err
	}
	if f.kubeconfig != "" {
		config, err := clientcmd.BuildConfigFromFlags("", f.kubeconfig)
		if err != nil {
			return nil, fmt.Errorf("read kubeconfig %s: %w", f.kubeconfig, err)
		}
		config.QPS, config.UserAgent = -1, "clusterctl"
		return config, nil
	}
	live, _, _, err := f.connectLive(c)
	if err != nil {
		return nil, err
	}
	return live.REST(), nil
}

// kubeconfigFile returns the path of a kubeconfig with the rights of the caller. It is the file of the flag as it is,
// so that nothing of it is lost, such as a user to impersonate or a proxy. Without the flag it is a file in dir that is
// made from the folder's state, and names one server.
func (f *apiFlags) kubeconfigFile(c *cobra.Command, dir string) (string, error) {
	if err := f.checkOutput(); err != nil {
		return "", err
	}
	if f.kubeconfig != "" {
		return f.kubeconfig, nil
	}
	_, configuration, s, err := f.connectLive(c)
	if err != nil {
		return "", err
	}
	servers := apiServerAddresses(configuration.Cluster)
	if len(servers) == 0 {
		return "", errors.New("no machine has the control-plane role")
	}
	request := certs.SuperAdmin()
	request.Lifetime = toolCertificateLifetime
	pair, err := certs.Issue(s.CA(certs.ClusterCA), request, time.Now())
	if err != nil {
		return "", err
	}
	server := "https://" + cmp.Or(configuration.Cluster.Endpoint, servers[0])
	text, err := certs.Kubeconfig(configuration.Cluster.Name, server, request.CommonName, s.Trust(certs.ClusterCA),
		pair)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "kubeconfig")
	return path, os.WriteFile(path, text, 0o600)
}

// sourcesClient reads and writes GitSources.
type sourcesClient struct {
	dynamic.NamespaceableResourceInterface
}

func newSourcesClient(config *rest.Config) (sourcesClient, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return sourcesClient{}, err
	}
	return sourcesClient{client.Resource(schema.GroupVersionResource{Group: gitsource.Group, Version: gitsource.Version,
		Resource: gitsource.Resource})}, nil
}

// listSources connects with the rights of the caller, and returns the sources with the names; all if there are none. It
// also returns the configuration and the client that it used.
func (f *apiFlags) listSources(c *cobra.Command, names []string) (*rest.Config, sourcesClient, []*gitops.Source,
	error) {
	config, err := f.connect(c)
	if err != nil {
		return nil, sourcesClient{}, nil, err
	}
	client, err := newSourcesClient(config)
	if err != nil {
		return nil, sourcesClient{}, nil, err
	}
	list, err := client.list(c.Context(), names)
	return config, client, list, err
}

// list returns all sources in the order of their names, or those with the names, as NAME or NAMESPACE/NAME.
func (s sourcesClient) list(ctx context.Context, names []string) ([]*gitops.Source, error) {
	list, err := s.List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil, errors.New("the cluster has no GitSources: declare a git_source block, and run clusterctl apply")
	}
	if err != nil {
		return nil, fmt.Errorf("list GitSources: %w", err)
	}
	var all []*gitops.Source
	for i := range list.Items {
		source, err := gitops.SourceOf(&list.Items[i])
		if err != nil {
			return nil, err
		}
		all = append(all, source)
	}
	slices.SortFunc(all, func(a, b *gitops.Source) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	if len(names) == 0 {
		return all, nil
	}
	var selected []*gitops.Source
	for _, name := range names {
		key := parseSource(name)
		i := slices.IndexFunc(all, func(o *gitops.Source) bool { return o.Key() == key })
		if i < 0 {
			return nil, fmt.Errorf("there is no GitSource %s", key)
		}
		selected = append(selected, all[i])
	}
	return selected, nil
}

// parseSource parses NAME or NAMESPACE/NAME.
func parseSource(text string) gitops.Key {
	if namespace, name, ok := strings.Cut(text, "/"); ok {
		return gitops.Key{Namespace: namespace, Name: name}
	}
	return gitops.Key{Namespace: gitsource.Namespace, Name: text}
}

// write prints a value as JSON or YAML, or the text of table. Messages in a text come from workloads and tenants, and
// must not control the terminal.
func (f *apiFlags) write(c *cobra.Command, value any, table func(io.Writer) error) error {
	switch f.output {
	case outputJSON:
		return printJSON(c, value)
	case outputYAML:
		text, err := yaml.Marshal(value)
		if err != nil {
			return err
		}
		_, err = c.OutOrStdout().Write(text)
		return err
	}
	var text strings.Builder
	if err := table(&text); err != nil {
		return err
	}
	_, err := io.WriteString(c.OutOrStdout(), config.EscapeControls(text.String()))
	return err
}

// sourceStatus is what `gitops status` prints about a source.
type sourceStatus struct {
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	URL       string   `json:"url"`
	Path      string   `json:"path,omitempty"`
	Ready     string   `json:"ready"` // True, False or Unknown
	Reason    string   `json:"reason,omitempty"`
	Message   string   `json:"message,omitempty"`
	Revision  string   `json:"revision,omitempty"` // last one whose objects were all applied
	Objects   int      `json:"objects"`
	Suspended bool     `json:"suspended,omitempty"`
	Observed  bool     `json:"observed"` // the controller has seen the present generation
	Drifted   []string `json:"drifted,omitempty"`
	Failed    []string `json:"failed,omitempty"`
	Pruning   []string `json:"pruning,omitempty"`
}

func statusOfSource(s *gitops.Source) sourceStatus {
	out := sourceStatus{Namespace: s.Namespace, Name: s.Name, URL: s.Spec.URL, Path: s.Spec.Path, Ready: "Unknown",
		Revision: s.Status.AppliedRevision, Objects: s.Status.Objects, Suspended: s.Spec.Suspend,
		Observed: s.Status.ObservedGeneration == s.Generation, Drifted: s.Status.Drifted, Failed: s.Status.Failed,
		Pruning: s.Status.Pruning}
	for _, c := range s.Status.Conditions {
		if c.Type == gitsource.ConditionReady {
			out.Ready, out.Reason, out.Message = string(c.Status), c.Reason, c.Message
		}
	}
	return out
}

// statusesOf returns the statuses of sources. It never returns nil, which would be null in JSON.
func statusesOf(list []*gitops.Source) []sourceStatus {
	states := make([]sourceStatus, len(list))
	for i, s := range list {
		states[i] = statusOfSource(s)
	}
	return states
}

// isWell reports whether a source needs no attention.
func (s sourceStatus) isWell() bool { return s.Suspended || s.Ready == "True" && s.Observed }

func newGitOpsStatus() *cobra.Command {
	var flags apiFlags
	c := &cobra.Command{
		Use:   "status [SOURCE…]",
		Short: "Show the state of the sources; exit with 1 if one is not ready",
		RunE: func(c *cobra.Command, args []string) error {
			_, _, list, err := flags.listSources(c, args)
			if err != nil {
				return err
			}
			return flags.printStatus(c, list)
		},
	}
	flags.add(c)
	return c
}

// printStatus prints sources. If one of them is not ready, it returns exit code 1.
func (f *apiFlags) printStatus(c *cobra.Command, list []*gitops.Source) error {
	states := statusesOf(list)
	if err := f.writeStatuses(c, states); err != nil {
		return err
	}
	if slices.ContainsFunc(states, func(s sourceStatus) bool { return !s.isWell() }) {
		return exitCode(1)
	}
	return nil
}

// writeStatuses prints the statuses in the format of the flags.
func (f *apiFlags) writeStatuses(c *cobra.Command, states []sourceStatus) error {
	return f.write(c, states, func(w io.Writer) error { return printSources(w, states) })
}

// printSources prints a table, and what needs attention below each source.
func printSources(out io.Writer, states []sourceStatus) error {
	if len(states) == 0 {
		_, err := fmt.Fprintln(out, "no GitSources")
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "SOURCE\tREADY\tOBJECTS\tREVISION\tMESSAGE")
	for _, s := range states {
		ready, message := s.Ready, s.Message
		if s.Suspended {
			ready = "suspended"
		} else if !s.Observed {
			message = "the controller has not seen the present version yet"
		}
		fmt.Fprintf(w, "%s/%s\t%s\t%d\t%s\t%s\n", s.Namespace, s.Name, ready, s.Objects, shortRevision(s.Revision),
			config.EscapeLine(message))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, s := range states {
		for _, group := range []struct {
			title string
			list  []string
		}{{"differ and are not reverted", s.Drifted}, {"failed", s.Failed}, {"are to be deleted", s.Pruning}} {
			if len(group.list) == 0 {
				continue
			}
			fmt.Fprintf(out, "\n%s/%s: these objects %s:\n", s.Namespace, s.Name, group.title)
			for _, line := range group.list {
				if _, err := fmt.Fprintf(out, "  %s\n", config.EscapeLine(line)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// shortRevision shortens the commit ID of a revision to 12 characters.
func shortRevision(revision string) string {
	label, hash, ok := strings.Cut(revision, "@")
	if !ok {
		return cmp.Or(revision, "none")
	}
	_, digits, _ := strings.Cut(hash, ":")
	return label + "@" + digits[:min(len(digits), 12)]
}

// printPreview prints the changes that a reconciliation would make, with the signs and the last line of a plan.
func printPreview(out io.Writer, p gitops.Preview) error {
	signs := map[string]string{"create": "+", "change": "~", "recreate": "-/+", "delete": "-", "keep": "=",
		"refused": "!"}
	count := map[string]int{}
	fmt.Fprintf(out, "%s at %s: %d objects\n", p.Source, p.Revision, p.Objects)
	for _, change := range p.Changes {
		count[change.Action]++
		text := fmt.Sprintf("  %s %s", cmp.Or(signs[change.Action], "?"), change.Object)
		if change.Reason != "" {
			text += " (" + change.Action + ": " + config.EscapeLine(change.Reason) + ")"
		}
		if change.File != "" {
			text += "  " + change.File
		}
		fmt.Fprintln(out, text)
		for _, line := range change.Diff {
			fmt.Fprintf(out, "      %s\n", config.EscapeLine(line))
		}
	}
	if len(p.Changes) == 0 {
		_, err := fmt.Fprintln(out, "No changes. The objects are as declared.")
		return err
	}
	text := fmt.Sprintf("Plan: %d to create, %d to change, %d to remove", count["create"], count["change"],
		count["delete"])
	for _, of := range []struct{ action, text string }{{"recreate", "to replace"}, {"keep", "kept as they are"},
		{"refused", "refused by the API"}} {
		if n := count[of.action]; n > 0 {
			text += fmt.Sprintf(", %d %s", n, of.text)
		}
	}
	_, err := fmt.Fprintln(out, text+".")
	return err
}

// decodePreview decodes the output of `gitops-controller diff`.
func decodePreview(text []byte) (p gitops.Preview, err error) {
	if err = json.Unmarshal(text, &p); err != nil {
		return p, fmt.Errorf("read the output of gitops-controller: %w", err)
	}
	return p, nil
}
