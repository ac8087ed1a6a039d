package main

import (
	"errors"

	"github.com/spf13/cobra"

	"clusterctl/provision/state"
)

func newCerts() *cobra.Command {
	c := &cobra.Command{Use: "certs", Short: "Look at the cluster's certificates, renew and revoke them, replace authorities"}
	c.AddCommand(newCheckExpiration(), newHandedOut(), newRenew(), newRotate(), newRevoke())
	return c
}

// wishFlags are those of commands that write into the state what the next apply is to do.
type wishFlags struct {
	runFlags
	folder string
}

func (f *wishFlags) add(c *cobra.Command) {
	f.configFlags.add(c)
	c.Flags().StringVarP(&f.folder, "chdir", "C", ".", "`folder` of the configuration")
	c.Flags().StringVar(&f.stateDir, "state", "", "`folder` of the state")
	c.Flags().DurationVar(&f.lockTimeout, "lock-timeout", 0, "how long to wait for another run to end")
}

// change changes the state under the lock, unless do returns an error.
func (f *wishFlags) change(c *cobra.Command, do func(s *state.State, dir string) error) error {
	configuration, err := f.load(c, []string{f.folder})
	if err != nil {
		return err
	}
	store, err := f.store(configuration)
	if err != nil {
		return err
	}
	lock, err := f.lock(c.Context(), store)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Release() }()
	store.Lock = lock
	s, err := store.Read()
	if err != nil {
		return err
	}
	if s == nil {
		return errors.New("there is no cluster yet: apply first")
	}
	if err := do(s, store.Dir); err != nil {
		return err
	}
	return store.Write(s)
}
