package main

import (
	"github.com/spf13/cobra"

	"clusterctl/provision/state"
)

// folderFlags are those of commands whose arguments are something else than the configuration.
type folderFlags struct {
	runFlags
	folder string
}

// add adds them; writes says that the command takes the lock.
func (f *folderFlags) add(c *cobra.Command, writes bool) {
	f.configFlags.add(c)
	c.Flags().StringVarP(&f.folder, "chdir", "C", ".", "`folder` of the configuration")
	_ = c.RegisterFlagCompletionFunc("chdir", directories) // the flag is there
	c.Flags().
		StringVar(&f.stateDir, "state", "", "`folder` of the state; .clusterctl beside the configuration when empty")
	if writes {
		f.addLock(c)
	}
}

// change changes the state under its lock, unless do returns an error, and keeps the one from before. dir is its
// folder.
func (f *folderFlags) change(c *cobra.Command, do func(s *state.State, dir string) error) error {
	configuration, err := f.load(c, []string{f.folder})
	if err != nil {
		return err
	}
	store, err := f.locked(c.Context(), configuration)
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
	if err := store.Keep(); err != nil {
		return err
	}
	return store.Write(s)
}
