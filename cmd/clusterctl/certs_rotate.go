package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"clusterctl/certs"
	"clusterctl/provision/state"
)

// rotationArguments maps arguments to what they replace, and to how long the former authority is trusted by default.
// clusterctl cannot know who has a kubeconfig, runs a long-lived pod or stores a token in a file. So the cluster CA and
// the service account key stay trusted until the user finishes the rotation. Users of the other two reload them
// automatically.
var rotationArguments = map[string]struct {
	name string
	keep time.Duration
}{
	"cluster-ca":      {certs.ClusterCA, state.UntilFinished},
	"etcd-ca":         {certs.EtcdCA, 0},
	"front-proxy-ca":  {certs.FrontProxyCA, 0},
	"service-account": {state.ServiceAccount, state.UntilFinished},
}

// encryptionKey is the argument for the encryption key, which is replaced by changing its name in the configuration.
const encryptionKey = "encryption"

func newRotate() *cobra.Command {
	var flags folderFlags
	var keep time.Duration
	var finish bool
	var given givenAuthority
	names := append(slices.Sorted(maps.Keys(rotationArguments)), encryptionKey, "all")
	c := &cobra.Command{
		Use:   "rotate [-C FOLDER] " + strings.Join(names, "|") + "…",
		Short: "Replace authorities and keys with the next apply, without an outage",
		Long: `Replace authorities and keys with the next apply, without an outage.

Apply first makes all machines trust the next authority besides the former one. Then it issues all certificates by the
next one, machine by machine. Then it removes the trust in the former one. The next apply continues an interrupted one.

The former cluster CA, and the former key of service accounts, are trusted until -finish, or for the duration of -keep,
because kubeconfigs and tokens that were issued before depend on them.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			args, err := rotatedNames(args, names)
			if err != nil {
				return err
			}
			next, err := given.read(args, finish, time.Now())
			if err != nil {
				return err
			}
			var lines []string
			err = flags.changeState(c, func(s *state.State, dir string) error {
				for _, arg := range args {
					what, err := recordRotation(s, arg, next, keep, c.Flags().Changed("keep"), finish, time.Now())
					if err != nil {
						return err
					}
					lines = append(lines, arg+": "+what)
					if finish && arg == "cluster-ca" {
						handed, err := state.IssuedKubeconfigs(dir)
						if err != nil {
							return err
						}
						lines = append(lines, stoppedKubeconfigs(s, handed)...)
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
			fmt.Fprintln(c.OutOrStdout(), strings.Join(append(lines, "Run clusterctl apply."), "\n"))
			return nil
		},
	}
	flags.add(c, true)
	c.ValidArgs = names
	c.Flags().
		DurationVar(&keep, "keep", 0, "how long the former one is trusted after everything has been issued by the "+
			"next one; for the cluster CA and service accounts until -finish, otherwise not at all")
	c.Flags().
		StringVar(&given.certificate, "certificate", "", "`file` of the next authority, an intermediate say, rather "+
			"than one that is made; with -key")
	c.Flags().StringVar(&given.key, "key", "", "`file` of its key")
	c.Flags().BoolVar(&finish, "finish", false, "stop trusting the former one")
	return c
}

// rotatedNames returns the arguments with "all" replaced by its meaning. names are the valid arguments.
func rotatedNames(args, names []string) ([]string, error) {
	if slices.Contains(args, "all") {
		args = slices.Sorted(maps.Keys(rotationArguments))
	}
	for _, arg := range args {
		if arg == encryptionKey {
			return nil, errors.New("the key that encrypts the store is named in the configuration: give key in " +
				"cluster { encryption { } } another name and apply, and everything stored is written again with a " +
				"new key")
		}
		if _, ok := rotationArguments[arg]; !ok {
			return nil, fmt.Errorf("rotate %q: there are %s", arg, strings.Join(names, ", "))
		}
	}
	return args, nil
}

// stoppedKubeconfigs returns a line for each issued kubeconfig that stops working without the former cluster CA.
func stoppedKubeconfigs(s *state.State, issued []state.IssuedKubeconfig) (lines []string) {
	for _, h := range s.DependOnFormerCA(issued, time.Now()) {
		lines = append(lines, fmt.Sprintf("  the kubeconfig of %s, issued on %s, stops working", h.Name,
			h.At.UTC().Format(time.DateOnly)))
	}
	return lines
}

// givenAuthority is an authority that the user supplies.
type givenAuthority struct{ certificate, key string }

// read returns the supplied authority, or an empty pair if there is none.
func (g givenAuthority) read(args []string, finish bool, now time.Time) (certs.Pair, error) {
	switch {
	case g.certificate == "" && g.key == "":
		return certs.Pair{}, nil
	case g.key == "":
		return certs.Pair{}, errors.New("-certificate without -key: an authority whose key is elsewhere could " +
			"issue nothing here, no certificate of a machine and no revocation list. Have it sign an " +
			"intermediate, and give that with its key")
	case g.certificate == "" || finish || len(args) != 1 || args[0] == state.ServiceAccount:
		return certs.Pair{}, errors.New("-certificate and -key are for one authority that is to be replaced by theirs")
	}
	var pair certs.Pair
	var err error
	if pair.Cert, err = os.ReadFile(g.certificate); err != nil {
		return certs.Pair{}, fmt.Errorf("read the authority: %w", err)
	}
	if pair.Key, err = os.ReadFile(g.key); err != nil {
		return certs.Pair{}, fmt.Errorf("read the authority: %w", err)
	}
	return certs.Authority(pair, now)
}

// recordRotation records the begin or the end of one replacement in the state, and returns a description of it.
func recordRotation(
	s *state.State,
	arg string,
	next certs.Pair,
	keep time.Duration,
	hasKeep, finish bool,
	now time.Time,
) (string, error) {
	name := rotationArguments[arg].name
	if r, under := s.Rotations[name]; finish || under {
		switch {
		case !under:
			return "", fmt.Errorf("%s is not being replaced", arg)
		case !finish:
			return "", fmt.Errorf("%s is being replaced since %s: apply continues this, and clusterctl certs "+
				"rotate -finish %s ends it", arg, r.Since.UTC().Format("2006-01-02 15:04 UTC"), arg)
		case r.Issued.IsZero():
			return "", fmt.Errorf("not everything is issued by the next %s yet: apply first, with all machines", arg)
		}
		r.IsFinishRequested = true
		s.Rotations[name] = r
		return "the former one is not trusted any more after the next apply. " + endMessages[arg], nil
	}
	if !hasKeep {
		keep = rotationArguments[arg].keep
	} else if keep < 0 {
		return "", errors.New("-keep is how long, from 0 on")
	}
	var err error
	switch {
	case len(next.Cert) > 0:
	case name == state.ServiceAccount:
		next.Key, next.Cert, err = certs.NewKey()
	default:
		next, err = certs.NewCA(certs.CommonNames[name], 0, now)
	}
	if err == nil {
		err = s.Rotate(name, next, keep, now)
	}
	return "the next apply has all machines trust another one, and issues everything by it", err
}

// endMessages describes what stops working when the former authority or key is no longer trusted.
var endMessages = map[string]string{
	"cluster-ca": "Kubeconfigs that were issued before the replacement stop working, and clients that read " +
		"the CA before it, pods that have run since then, do not trust the API server any more.",
	"etcd-ca": "Nobody but the control plane has anything of it.",
	"front-proxy-ca": "Aggregated servers that have not read extension-apiserver-authentication since then refuse " +
		"what the API server passes on.",
	"service-account": "Tokens that were made before the replacement stop working: those in Secrets of type " +
		"kubernetes.io/service-account-token, and those from kubectl create token that live longer. Pods have had " +
		"new ones within the hour.",
}
