// Clocks and a battery for the test machine, as firmware describes them. The kernel's drivers acpi-cpufreq, battery and
// processor run on it unchanged; a test reads and writes the same I/O ports through /dev/port.
//
// The ports are scratch registers of serial ports, which keep what is written to them: 0x2ff of the second, 0x3ef of the
// third one (-device isa-serial).
DefinitionBlock ("", "SSDT", 2, "QFABR", "ENERGY", 1)
{
    External (\_SB.CPUS.C000, DeviceObj)
    External (\_SB.CPUS.C001, DeviceObj)

    Scope (\_SB)
    {
        OperationRegion (REGS, SystemIO, 0x3EF, 1)
        Field (REGS, ByteAcc, NoLock, Preserve) { LEFT, 8 }

        // Five of the clocks of the SA-1110 (206.4 to 59 MHz), MHz rounded. The driver writes the fifth number of a
        // package to the port of _PCT. Powers in mW: 0.92 and 0.41 W are printed in the thesis, the others lie between.
        Name (PSSS, Package ()
        {
            Package () { 206, 920, 10, 10, 0x0A, 0x0A },
            Package () { 162, 768, 10, 10, 0x08, 0x08 },
            Package () { 133, 667, 10, 10, 0x06, 0x06 },
            Package () { 103, 563, 10, 10, 0x04, 0x04 },
            Package () { 59,  410, 10, 10, 0x02, 0x02 }
        })
        Name (PCTS, Package ()
        {
            ResourceTemplate () { Register (SystemIO, 8, 0, 0x2FF) },
            ResourceTemplate () { Register (SystemIO, 8, 0, 0x2FF) }
        })
        // One clock for both CPUs (0xFC: set by any of them).
        Name (PSDS, Package () { Package () { 5, 0, 0, 0xFD, 2 } })

        // A battery of 10 Wh, 10 V, which discharges at 1.32 W; the port holds the percentage that is left.
        Device (BAT0)
        {
            Name (_HID, EisaId ("PNP0C0A"))
            Name (_UID, 1)
            Method (_STA) { Return (0x1F) }
            Name (_BIF, Package ()
            {
                0, 10000, 10000, 1, 10000, 500, 100, 100, 100, "scratch", "1", "LION", "Q-Fabric"
            })
            Method (_BST)
            {
                Local0 = Package (4) { 1, 1320, 0, 10000 }
                Local0 [2] = LEFT * 100
                Return (Local0)
            }
            Name (_PCL, Package () { \_SB })
        }
    }

    Scope (\_SB.CPUS.C000)
    {
        Method (_PSS) { Return (\_SB.PSSS) }
        Method (_PCT) { Return (\_SB.PCTS) }
        Method (_PSD) { Return (\_SB.PSDS) }
        Name (_PPC, 0)
    }

    Scope (\_SB.CPUS.C001)
    {
        Method (_PSS) { Return (\_SB.PSSS) }
        Method (_PCT) { Return (\_SB.PCTS) }
        Method (_PSD) { Return (\_SB.PSDS) }
        Name (_PPC, 0)
    }
}
