package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"clusterctl/cmd/gitops/apply"
	"clusterctl/cmd/gitops/fetch"
	"clusterctl/cmd/gitops/render"
	"clusterctl/cmd/gitops/sops"
	"clusterctl/daemons/config/gitsource"
	"clusterctl/daemons/gitops"
	"clusterctl/daemons/version"
)

// diff prints, as JSON, what a reconciliation of a source would do. `clusterctl gitops diff` runs it. The caller's user
// must be allowed to act as the source's service account.
func diff(ctx context.Context, args []string, out io.Writer) error {
	flags := pflag.NewFlagSet("diff", pflag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", "", "credentials towards the API server")
	revision := flags.String("revision", "", "revision to use instead of what the source selects")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return nil
		}
		return err
	}
	namespace, source, ok := strings.Cut(flags.Arg(0), "/")
	if flags.NArg() != 1 || !ok {
		return errors.New("usage: gitops-controller diff --kubeconfig FILE [--revision REVISION] NAMESPACE/NAME")
	}
	if err := render.Isolate(); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return fmt.Errorf("read kubeconfig %s: %w", *kubeconfig, err)
	}
	config.QPS, config.UserAgent = -1, "clusterctl"
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	list, err := client.Resource(schema.GroupVersionResource{Group: gitsource.Group, Version: gitsource.Version,
		Resource: gitsource.Resource}).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list GitSources: %w", err)
	}
	var all []*gitops.Source
	var selected *gitops.Source
	for i := range list.Items {
		s, err := gitops.SourceOf(&list.Items[i])
		if err != nil {
			return err
		}
		if all = append(all, s); s.Namespace == namespace && s.Name == source {
			selected = s
		}
	}
	switch {
	case selected == nil:
		return fmt.Errorf("there is no GitSource %s/%s", namespace, source)
	case selected.Spec.IsFolder():
		return errors.New("the source is a folder of the control-plane machines, which this computer cannot read")
	}
	dir, err := os.MkdirTemp("", "gitops-diff-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	fetcher, err := fetch.New(dir)
	if err != nil {
		return err
	}
	processes, err := render.NewProcesses(dir)
	if err != nil {
		return err
	}
	c := gitops.New(gitops.Config{Client: client, Cluster: apply.New(config), Fetcher: fetcher,
		Decrypter: sops.Decrypter{}, Recorder: noEvents{},
		Renderer: render.Renderer{KubeVersion: version.Kubernetes, Processes: processes},
		Log:      slog.New(slog.DiscardHandler)})
	preview, err := c.Preview(ctx, selected, *revision, all)
	if err != nil {
		return err
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(preview)
}

// noEvents records no events.
type noEvents struct{}

// Event implements gitops.Recorder.
func (noEvents) Event(runtime.Object, string, string, string) {}
