package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"clusterctl/hcl/config"
	"clusterctl/provision/plan"
	"clusterctl/provision/run"
	"clusterctl/provision/state"
	"clusterctl/provision/support"
)

func newDebug() *cobra.Command {
	c := &cobra.Command{Use: "debug", Short: "Find out what is wrong"}
	c.AddCommand(newCollect(), newDebugNetwork())
	return c
}

func newCollect() *cobra.Command {
	var flags runFlags
	var out string
	c := &cobra.Command{
		Use:   "collect [FOLDER|FILE]",
		Short: "Collect the state of all machines and of the API in one file for support, without secrets",
		Long: `Gather units' states and journals, versions, certificates' dates, static pods, sockets, disks and
kernel messages of all machines, and the API's objects and events, into one compressed archive.
Private keys, tokens, the data of secrets and config maps, sensitive values of the configuration, and
what variables of environments and flags hold whose names speak of secrets are left out. A machine that is
not reached and objects that cannot be listed are named, also in PROBLEMS.txt, and the others are gathered.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			configuration, err := flags.loadOffline(c, args)
			if err != nil {
				return err
			}
			engine, err := flags.engine(configuration, nil)
			if err != nil {
				return err
			}
			now := time.Now().UTC()
			name := fmt.Sprintf("support-%s-%s", configuration.Cluster.Name, now.Format("20060102T150405Z"))
			if out == "" {
				out = name + ".tar.gz"
			}
			files, problems, err := collectBundle(c.Context(), engine, configuration.Cluster)
			if err != nil {
				return err
			}
			for _, p := range problems {
				fmt.Fprintln(c.ErrOrStderr(), "Warning:", p)
			}
			if err := writeArchive(out, name, files, now); err != nil {
				return fmt.Errorf("write %s: %w", out, err)
			}
			fmt.Fprintf(c.OutOrStdout(), "%s holds %s. Look through it before you give it away.\n", out,
				plan.Number(len(files), "file"))
			return nil
		},
	}
	flags.configFlags.add(c)
	c.Flags().
		BoolVar(&flags.acceptNewHostKeys, "accept-new-host-keys", false, "trust machines that are not in known_hosts "+
			"yet, and write their keys there")
	c.Flags().IntVar(&flags.parallelism, "parallelism", 32, "how many machines are asked at a time")
	c.Flags().DurationVar(&flags.sshTimeout, "ssh-timeout", 15*time.Second, "how long logging in to a machine may take")
	c.Flags().StringVar(&flags.stateDir, "state", "", "`folder` of the state")
	c.Flags().StringVarP(&out, "output", "o", "", "`file` to write; support-CLUSTER-TIME.tar.gz when empty")
	return c
}

const objectsTimeout = 2 * time.Minute

// collectBundle collects from the machines and the API in parallel. problems describe what could not be collected.
func collectBundle(
	ctx context.Context,
	engine *run.Engine,
	c *config.Cluster,
) (files []support.File, problems []string, err error) {
	s, err := engine.Store.Read()
	if err != nil {
		return nil, nil, err
	}
	redactor := support.NewRedactor(knownSecrets(s, c))
	var objects []support.File
	var unlisted []string
	var objectsErr error
	var wg sync.WaitGroup
	wg.Go(func() {
		if s == nil {
			objectsErr = errors.New("there is no cluster yet")
			return
		}
		ctx, cancel := context.WithTimeout(ctx, objectsTimeout)
		defer cancel()
		live, err := connectAPI(s, c)
		if err != nil {
			objectsErr = err
			return
		}
		objects, unlisted, objectsErr = live.Gather(ctx, redactor)
	})
	machines, _, err := engine.Collect(ctx)
	wg.Wait()
	if err != nil {
		return nil, nil, err
	}
	if objectsErr != nil {
		problems = append(problems, fmt.Sprintf("the API's objects are not in it: %v", objectsErr))
	}
	problems = append(problems, unlisted...)
	for _, o := range objects {
		files = append(files, support.File{Name: "objects/" + o.Name, Content: o.Content})
	}
	for _, m := range machines {
		if m.Error != "" {
			problems = append(problems, fmt.Sprintf("%s is not in it: %s", m.Name, m.Error))
		}
		for _, f := range m.Files {
			files = append(files, support.File{Name: "machines/" + m.Name + "/" + f.Name, Content: f.Content})
		}
	}
	for i, f := range files {
		files[i].Content = []byte(redactor.Hide(string(f.Content)))
	}
	for i, p := range problems {
		problems[i] = redactor.Hide(p)
	}
	if len(problems) > 0 {
		files = append(files, support.File{Name: "PROBLEMS.txt", Content: []byte(strings.Join(problems, "\n") + "\n")})
	}
	return files, problems, nil
}

// knownSecrets returns the known secrets: the cluster's keys, and the sensitive values of the configuration and of what
// was applied before.
func knownSecrets(s *state.State, c *config.Cluster) []string {
	list := slices.Clone(c.Secrets)
	if s == nil {
		return list
	}
	list = append(list, s.Keys.Secrets...)
	list = append(list, string(s.Keys.ServiceAccount))
	for _, keys := range []map[string][]byte{s.Keys.CAs, s.Keys.Next} {
		for _, k := range keys {
			list = append(list, string(k))
		}
	}
	for _, k := range slices.Concat(s.Keys.Encryption.Keys, s.Keys.Encryption.Former) {
		if len(k.Secret) > 0 {
			list = append(list, base64.StdEncoding.EncodeToString(k.Secret))
		}
	}
	return list
}

// writeArchive atomically writes a compressed archive that only its owner may read.
func writeArchive(path, folder string, files []support.File, now time.Time) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".support-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	err = errors.Join(writeTar(f, folder, files, now), f.Chmod(0o600), f.Sync(), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

func writeTar(w io.Writer, folder string, files []support.File, now time.Time) error {
	z := gzip.NewWriter(w)
	t := tar.NewWriter(z)
	for _, f := range files {
		h := &tar.Header{
			Name:     folder + "/" + f.Name,
			Mode:     0o600,
			Size:     int64(len(f.Content)),
			ModTime:  now,
			Typeflag: tar.TypeReg,
		}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		if _, err := t.Write(f.Content); err != nil {
			return err
		}
	}
	return errors.Join(t.Close(), z.Close())
}
