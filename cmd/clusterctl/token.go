package main

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"clusterctl/certs"
	"clusterctl/hcl/load"
	"clusterctl/provision/state"
	"clusterctl/provision/workload"
)

func newToken() *cobra.Command {
	c := &cobra.Command{Use: "token", Short: "Manage tokens with which undeclared machines join as nodes"}
	c.AddCommand(newTokenCreate(), newTokenList(), newTokenDelete())
	return c
}

// connectLive connects to the API server.
func (f *folderFlags) connectLive(c *cobra.Command) (*workload.Live, *load.Configuration, *state.State, error) {
	configuration, s, err := f.loadApplied(c, []string{f.folder})
	if err != nil {
		return nil, nil, nil, err
	}
	live, err := connectAPI(s, configuration.Cluster)
	return live, configuration, s, err
}

func newTokenCreate() *cobra.Command {
	var flags folderFlags
	var ttl time.Duration
	var description string
	var groups []string
	var kubeconfig bool
	c := &cobra.Command{
		Use:   "create [-C FOLDER] [TOKEN]",
		Short: "Create a bootstrap token and print it",
		Long: `Create a bootstrap token and print it, or with -kubeconfig a file for the kubelet's --bootstrap-kubeconfig.

With it a kubelet requests its node's client certificate, which is approved automatically. The first token creates the
roles for this.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			text := ""
			if len(args) > 0 {
				text = args[0]
			}
			token, err := newBootstrapToken(text, ttl, time.Now())
			if err != nil {
				return err
			}
			token.Description, token.Groups = description, groups
			for _, g := range groups {
				if !tokenGroup().MatchString(g) {
					return fmt.Errorf("-group=%s: a group of tokens begins with %q", g, "system:bootstrappers:")
				}
			}
			live, configuration, s, err := flags.connectLive(c)
			if err != nil {
				return err
			}
			if err := live.CreateToken(c.Context(), token); err != nil {
				return err
			}
			if !kubeconfig {
				fmt.Fprintln(c.OutOrStdout(), token)
				return nil
			}
			servers := apiServerAddresses(configuration.Cluster)
			if len(servers) == 0 {
				return errors.New("no machine has the control-plane role")
			}
			out, err := bootstrapKubeconfig(configuration.Cluster.Name,
				"https://"+cmp.Or(configuration.Cluster.Endpoint, servers[0]), s.Trust(certs.ClusterCA), token)
			if err != nil {
				return err
			}
			_, err = c.OutOrStdout().Write(out)
			return err
		},
	}
	flags.add(c, false)
	c.Flags().DurationVar(&ttl, "ttl", 24*time.Hour, "how long it is good for; 0: for ever")
	c.Flags().StringVar(&description, "description", "", "what it is for")
	c.Flags().
		StringArrayVar(&groups, "group", []string{workload.NodeTokens}, "`group` of who has it, besides "+
			"system:bootstrappers; can be repeated")
	c.Flags().BoolVar(&kubeconfig, "kubeconfig", false, "print a kubeconfig with it")
	return c
}

var (
	bootstrapToken = lazyPattern(`^([a-z0-9]{6})\.([a-z0-9]{16})$`)
	tokenID        = lazyPattern(`^[a-z0-9]{6}$`)
	tokenGroup     = lazyPattern(`^system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]$`)
)

// lazyPattern returns a regular expression that is compiled on first use, because most processes never use it.
func lazyPattern(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}

// newBootstrapToken parses a token, or generates one if text is empty.
func newBootstrapToken(text string, ttl time.Duration, now time.Time) (t workload.Token, err error) {
	if text == "" {
		drawn := strings.ToLower(rand.Text() + rand.Text()) // characters of the base32 alphabet
		text = drawn[:6] + "." + drawn[6:22]
	}
	parts := bootstrapToken().FindStringSubmatch(text)
	if parts == nil {
		return t, errors.New("a token is six of a-z0-9, a dot, and sixteen of a-z0-9")
	}
	if ttl < 0 {
		return t, fmt.Errorf("-ttl=%s: it is too short", ttl)
	}
	t.ID, t.Secret = parts[1], parts[2]
	if ttl > 0 {
		t.Expires = now.Add(ttl).Truncate(time.Second)
	}
	return t, nil
}

func bootstrapKubeconfig(cluster, server string, ca []byte, t workload.Token) ([]byte, error) {
	const user = "kubelet-bootstrap"
	context := user + "@" + cluster
	return clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{cluster: {Server: server, CertificateAuthorityData: ca}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{user: {Token: t.String()}},
		Contexts:       map[string]*clientcmdapi.Context{context: {Cluster: cluster, AuthInfo: user}},
		CurrentContext: context,
	})
}

func newTokenList() *cobra.Command {
	var flags folderFlags
	c := &cobra.Command{
		Use:   "list [-C FOLDER]",
		Short: "List the bootstrap tokens, without their secrets",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			live, _, _, err := flags.connectLive(c)
			if err != nil {
				return err
			}
			tokens, err := live.Tokens(c.Context())
			if err != nil {
				return err
			}
			if flags.json {
				return writeList(c.OutOrStdout(), tokens)
			}
			w := tabwriter.NewWriter(c.OutOrStdout(), 0, 4, 3, ' ', 0)
			fmt.Fprintln(w, "TOKEN ID\tTTL\tEXPIRES\tDESCRIPTION\tEXTRA GROUPS")
			for _, t := range tokens {
				left, until := "<forever>", "<never>"
				if !t.Expires.IsZero() {
					left, until = formatRemaining(time.Until(t.Expires)), t.Expires.UTC().Format(time.RFC3339)
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", t.ID, left, until, cmp.Or(t.Description, "<none>"),
					cmp.Or(strings.Join(t.Groups, ","), "<none>"))
			}
			return w.Flush()
		},
	}
	flags.add(c, false)
	c.Flags().BoolVar(&flags.json, "json", false, "a JSON object a line, the result last")
	return c
}

func newTokenDelete() *cobra.Command {
	var flags folderFlags
	c := &cobra.Command{
		Use:   "delete [-C FOLDER] ID|TOKEN…",
		Short: "Delete a bootstrap token, so that no machine can join with it",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			var ids []string
			for _, arg := range args {
				id, _, _ := strings.Cut(arg, ".")
				if !tokenID().MatchString(id) {
					return fmt.Errorf("%q is neither a token nor its first half", arg)
				}
				ids = append(ids, id)
			}
			live, _, _, err := flags.connectLive(c)
			if err != nil {
				return err
			}
			for _, id := range ids {
				if err := live.DeleteToken(c.Context(), id); err != nil {
					return err
				}
				fmt.Fprintf(c.OutOrStdout(), "token %s: deleted\n", id)
			}
			return nil
		},
	}
	flags.add(c, false)
	c.ValidArgsFunction = completeArguments(&flags.runFlags, &flags.folder, 0, tokenIDs)
	return c
}
