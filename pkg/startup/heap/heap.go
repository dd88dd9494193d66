// Package heap has the kernel map the first pages of the Go heap in one call.
// A large program makes a few megabytes while its packages are initialised, a
// page fault for each 4 kB: in a virtual machine those cost more than all else
// that is done with them.
package heap
