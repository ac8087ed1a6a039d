package main

import (
	"github.com/spf13/cobra"

	"clusterctl/provision/state"
)

// folderFlags are the flags of commands that take the configuration in -C instead of an argument.
type folderFlags struct {
	runFlags
	folder string
}

// add adds the flags. writes means that the command takes the lock.
func (f *folderFlags) add(c *cobra.Command, writes bool) {
	f.configFlags.add(c)
	c.Flags().StringVarP(&f.folder, "chdir", "C", ".", "`folder` of the configuration")
	_ = c.RegisterFlagCompletionFunc("chdir", completeDirectories) // never fails, because the flag exists
	c.Flags().
		StringVar(&f.stateDir, "state", "", "`folder` of the state; .clusterctl beside the configuration when empty")
	if writes {
		f.addLock(c)
	}
}

// changeState calls do to change the state under its lock, and then saves the former state and writes the new one. If
// do returns an error, nothing is written. dir is the state's directory.
func (f *folderFlags) changeState(c *cobra.Command, do func(s *state.State, dir string) error) error {
	configuration, err := f.load(c, []string{f.folder})
	if err != nil {
		return err
	}
	store, err := f.lockedStore(c.Context(), configuration)
	if err != nil {
		return err
	}
	defer f.unlock()
	s, err := store.Read()
	if err == nil && s == nil {
		err = errNoCluster
	}
	if err != nil {
		return err
	}
	if err := do(s, store.Dir); err != nil {
		return err
	}
	if err := store.SaveVersion(); err != nil {
		return err
	}
	return store.Write(s)
}
