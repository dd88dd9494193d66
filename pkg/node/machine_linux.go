package node

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ThisMachine is the machine that the program runs on.
func ThisMachine() (Machine, error) {
	return Machine{
		FS:       os.DirFS("/"),
		Run:      Exec,
		Get:      Get,
		List:     ListRules,
		Hostname: os.Hostname,
		Uname:    uname,
		Root:     os.Geteuid() == 0,
		Now:      time.Now,
	}, nil
}

// uname says what `uname -a` says, without the last field, which is the
// program's own.
func uname() (string, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "", err
	}
	var fields []string
	for _, f := range [][]byte{u.Sysname[:], u.Nodename[:], u.Release[:], u.Version[:], u.Machine[:]} {
		fields = append(fields, unix.ByteSliceToString(f))
	}
	return strings.Join(fields, " "), nil
}
